//! What the text of an understood line does not tell: where its links lead, and what lies beneath its folders.
//! It looks at names only, opens no file, and only ever raises a class.

use std::path::{Path, PathBuf};

use ignore::WalkBuilder;
use tns_protocol::approval::RiskClass;
use tns_server_core::tool::Rating;
use tns_server_core::visible;

use super::rating::{ADDRESS_FILE, Beneath, Controls, Reads, Which};
use crate::guard::{self, Bounds, Place};

/// Most entries beneath the folders of one line that are looked at. More → the line asks.
const MAX_ENTRIES: usize = 20_000;

/// Raises the class of a line that reads more than its text says.
pub(super) fn raise(rating: &mut Rating, reads: &Reads, bounds: &Bounds, controls: &Controls<'_>) {
    let places: Vec<Place> =
        reads.paths.iter().filter_map(|path| guard::place(path, bounds.root()).ok()).collect();
    if places.iter().any(|place| is_address_file(&place.absolute(bounds.root()), controls)) {
        return set(rating, RiskClass::Escalation, "it looks for this server's own address".to_owned());
    }
    if rating.class >= RiskClass::Sensitive {
        return;
    }
    let mut budget = MAX_ENTRIES;
    let found = places.iter().find_map(|place| {
        let verdict = bounds.rate_read(place);
        if verdict.class > RiskClass::ReadOnly {
            return Some(verdict.reason);
        }
        let beneath = reads.beneath.as_ref()?;
        let folder =
            std::fs::canonicalize(place.absolute(bounds.root())).ok().filter(|path| path.is_dir())?;
        secret_beneath(&folder, beneath, bounds, &mut budget)
    });
    if let Some(reason) = found {
        let class = match rating.class {
            RiskClass::ReadOnly => RiskClass::Sensitive,
            _ => RiskClass::Unknown,
        };
        set(rating, class, reason);
    }
}

fn set(rating: &mut Rating, class: RiskClass, reason: String) {
    rating.class = class;
    rating.reasons = vec![reason];
    rating.key = None;
}

fn is_address_file(path: &Path, controls: &Controls<'_>) -> bool {
    let Some(file) = controls.folder.map(|folder| folder.join(ADDRESS_FILE)) else { return false };
    path == file || std::fs::canonicalize(path).is_ok_and(|real| real == file)
}

/// Says which file beneath a folder makes reading all of them ask, if one does.
fn secret_beneath(folder: &Path, beneath: &Beneath, bounds: &Bounds, budget: &mut usize) -> Option<String> {
    if bounds.owns_within(folder) {
        return Some("it reads the server's own data".to_owned());
    }
    // As ripgrep: links are not followed, and the user's own list of ignored files is another one there.
    let mut walk = WalkBuilder::new(folder);
    walk.git_global(false).follow_links(false);
    if beneath.which == Which::All {
        walk.standard_filters(false);
    }
    for entry in walk.build() {
        if *budget == 0 {
            return Some(format!(
                "more than {MAX_ENTRIES} entries lie beneath it, so secrets among them are not ruled out"
            ));
        }
        *budget -= 1;
        // What can't be listed here can't be read there either.
        let Ok(entry) = entry else { continue };
        if !entry.file_type().is_some_and(|kind| kind.is_file()) {
            continue;
        }
        let path = entry.path();
        let relative: PathBuf = path.strip_prefix(bounds.root()).unwrap_or(path).to_owned();
        if bounds.hides(&relative) && is_read(&relative, beneath) {
            let shown = visible::one_line(&relative.to_string_lossy());
            return Some(format!("it also reads {shown}, which looks like a secret"));
        }
    }
    None
}

/// Whether a file is one of those that the line chooses.
fn is_read(file: &Path, beneath: &Beneath) -> bool {
    let name = file.file_name().unwrap_or_default().to_string_lossy().to_lowercase();
    beneath.only.as_ref().is_none_or(|only| only.iter().any(|ending| name.ends_with(ending)))
}

#[cfg(test)]
mod tests;
