//! What is fuzzed: the decoder of each wire, the framing of events, the reader of a call's arguments.

use tns_server_engines::decode::WireFormat;

/// A decoder.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Target {
    Wire(WireFormat),
    EventStream,
    Arguments,
}

impl Target {
    /// Returns every target.
    pub(crate) fn all() -> Vec<Self> {
        let wires = WireFormat::ALL.map(Self::Wire);
        wires.into_iter().chain([Self::EventStream, Self::Arguments]).collect()
    }

    /// Returns the targets of a name; `all` is all of them.
    pub(crate) fn named(name: &str) -> Option<Vec<Self>> {
        let named: Vec<Self> =
            Self::all().into_iter().filter(|target| name == "all" || target.name() == name).collect();
        (!named.is_empty()).then_some(named)
    }

    /// Returns its name: of a wire, its provider's.
    pub(crate) fn name(self) -> &'static str {
        match self {
            Self::Wire(format) => format.provider(),
            Self::EventStream => "sse",
            Self::Arguments => "arguments",
        }
    }
}
