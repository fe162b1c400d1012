//! The calls of the Secret Service (GNOME Keyring, KWallet, KeePassXC) that keep and give keys.
//!
//! <https://specifications.freedesktop.org/secret-service/latest/>. Secrets travel as they are, over a socket
//! that is the user's own. Nothing here waits for a person: what is locked is said to be.

use secrecy::{ExposeSecret, SecretString};

use super::bus::{Answer, Bus, Fault};
use super::wire::{Call, Writer};

const SERVICE: &str = "org.freedesktop.secrets";
const ROOT: &str = "/org/freedesktop/secrets";
const OF_SERVICE: &str = "org.freedesktop.Secret.Service";
const OF_COLLECTION: &str = "org.freedesktop.Secret.Collection";
const OF_ITEM: &str = "org.freedesktop.Secret.Item";
/// The path of nothing.
const NOTHING: &str = "/";
/// What our entries are called there, beside the provider's id.
const OURS: &str = "tns";

/// What was found for a provider.
pub(super) enum Entry {
    Absent,
    Locked,
    Key(SecretString),
}

/// What became of a change.
#[derive(Debug, PartialEq, Eq)]
pub(super) enum Changed {
    Done,
    /// There was nothing to change.
    Nothing,
    /// It would ask a person for a password first.
    Locked,
}

/// The service, with a session in which secrets travel.
pub(super) struct Secrets {
    bus: Bus,
    session: String,
}

impl Secrets {
    pub(super) fn open(mut bus: Bus) -> Result<Self, Fault> {
        let mut arguments = Writer::new();
        arguments.string("plain").signature("s").string("");
        let answer = call(&mut bus, ROOT, OF_SERVICE, "OpenSession", "sv", arguments)?;
        let mut reader = answer.reader();
        // What the algorithm adds is empty for "plain".
        let session = (|| {
            (reader.signature()? == "s").then_some(())?;
            reader.string()?;
            reader.string()
        })();
        let session = session.ok_or_else(malformed)?.to_owned();
        Ok(Self { bus, session })
    }

    /// Finds a provider's key.
    pub(super) fn find(&mut self, provider: &str) -> Result<Entry, Fault> {
        let (open, locked) = self.search(provider)?;
        let Some(item) = open.first() else {
            return Ok(if locked.is_empty() { Entry::Absent } else { Entry::Locked });
        };
        let mut arguments = Writer::new();
        arguments.string(&self.session);
        let answer = call(&mut self.bus, item, OF_ITEM, "GetSecret", "o", arguments)?;
        let mut reader = answer.reader();
        let secret = (|| {
            reader.align(8)?.string()?;
            reader.blob()?;
            std::str::from_utf8(reader.blob()?).ok()
        })();
        let secret = secret.ok_or_else(malformed)?.trim();
        Ok(if secret.is_empty() { Entry::Absent } else { Entry::Key(secret.into()) })
    }

    /// Keeps a provider's key in the default collection, in place of one that is there.
    pub(super) fn keep(&mut self, provider: &str, key: &SecretString) -> Result<Changed, Fault> {
        let mut arguments = Writer::new();
        arguments.string("default");
        let answer = call(&mut self.bus, ROOT, OF_SERVICE, "ReadAlias", "s", arguments)?;
        let collection = answer.reader().string().ok_or_else(malformed)?.to_owned();
        if collection == NOTHING {
            // The first collection is made with a password of the user's, by a person.
            return Ok(Changed::Locked);
        }
        let mut arguments = Writer::new();
        arguments.array(8, |properties| {
            let label = format!("tns: key of {provider}");
            properties.align(8).string("org.freedesktop.Secret.Item.Label").signature("s").string(&label);
            properties.align(8).string("org.freedesktop.Secret.Item.Attributes").signature("a{ss}");
            properties.pairs(&attributes(provider));
        });
        arguments.align(8).string(&self.session).blob(&[]);
        arguments.blob(key.expose_secret().as_bytes()).string("text/plain");
        arguments.number(1);
        let created =
            call(&mut self.bus, &collection, OF_COLLECTION, "CreateItem", "a{sv}(oayays)b", arguments);
        let answer = match created {
            Err(Fault::Refused(name)) if name == "org.freedesktop.Secret.Error.IsLocked" => {
                return Ok(Changed::Locked);
            }
            created => created?,
        };
        let mut reader = answer.reader();
        let prompt = reader.string().and_then(|_item| reader.string()).ok_or_else(malformed)?.to_owned();
        self.unless_prompted(&prompt)
    }

    /// Removes every key of a provider.
    pub(super) fn remove(&mut self, provider: &str) -> Result<Changed, Fault> {
        let (open, locked) = self.search(provider)?;
        if !locked.is_empty() {
            return Ok(Changed::Locked);
        }
        let mut changed = Changed::Nothing;
        for item in open {
            let answer = call(&mut self.bus, &item, OF_ITEM, "Delete", "", Writer::new())?;
            let prompt = answer.reader().string().ok_or_else(malformed)?.to_owned();
            changed = self.unless_prompted(&prompt)?;
        }
        Ok(changed)
    }

    /// Dismisses a question to the user, if there is one: nobody may be there to answer.
    fn unless_prompted(&mut self, prompt: &str) -> Result<Changed, Fault> {
        if prompt == NOTHING {
            return Ok(Changed::Done);
        }
        call(&mut self.bus, prompt, "org.freedesktop.Secret.Prompt", "Dismiss", "", Writer::new())?;
        Ok(Changed::Locked)
    }

    /// Returns the entries of a provider that can be read, and those that are locked.
    fn search(&mut self, provider: &str) -> Result<(Vec<String>, Vec<String>), Fault> {
        let mut arguments = Writer::new();
        arguments.pairs(&attributes(provider));
        let answer = call(&mut self.bus, ROOT, OF_SERVICE, "SearchItems", "a{ss}", arguments)?;
        let mut reader = answer.reader();
        let mut paths = || reader.strings().map(owned).ok_or_else(malformed);
        Ok((paths()?, paths()?))
    }
}

/// What an entry is found by; the names that other programs' keyring libraries use as well.
fn attributes(provider: &str) -> [(&str, &str); 2] {
    [("service", OURS), ("username", provider)]
}

fn call(
    bus: &mut Bus,
    path: &str,
    interface: &str,
    member: &str,
    signature: &str,
    arguments: Writer,
) -> Result<Answer, Fault> {
    bus.call(Call { destination: SERVICE, path, interface, member, signature, arguments })
}

fn owned(paths: Vec<&str>) -> Vec<String> {
    paths.into_iter().map(str::to_owned).collect()
}

fn malformed() -> Fault {
    Fault::Broken("its answer has another form".into())
}
