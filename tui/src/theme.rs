//! The named styles of the screen: ANSI colours only, so that the terminal's own palette decides how they
//! look. With `NO_COLOR` only bold, underline and reverse remain; no meaning rests on a colour alone.

use ratatui::style::{Color, Modifier, Style};
use tns_protocol::approval::Risk;

/// Colours that tell agents apart, in the order of the roster.
const AGENT_COLOURS: [Color; 6] =
    [Color::Cyan, Color::Magenta, Color::Green, Color::Yellow, Color::Blue, Color::LightRed];

/// What a piece of the screen is, which decides how it looks.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Role {
    /// Words to read.
    Text,
    /// A heading, or what matters most in its row.
    Strong,
    /// What is there to be found, not to be read first.
    Faint,
    /// The user's name.
    User,
    /// An agent's name, by its place in the roster.
    Agent(usize),
    /// Something went well.
    Good,
    /// Something needs attention.
    Warn,
    /// Something went wrong.
    Bad,
    /// A key to press.
    Key,
    /// A bar that stands apart from what surrounds it.
    Bar,
}

/// How roles look in this terminal.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Theme {
    /// With the 16 ANSI colours.
    Colour,
    /// With bold, underline and reverse only.
    Plain,
}

impl Theme {
    /// Chooses by the value of `NO_COLOR`: set and not empty means no colours.
    pub(crate) fn choose(no_color: Option<&std::ffi::OsStr>) -> Self {
        if no_color.is_some_and(|value| !value.is_empty()) { Self::Plain } else { Self::Colour }
    }

    /// Returns the style of a role.
    pub(crate) fn style(self, role: Role) -> Style {
        let style = Style::new();
        match (self, role) {
            (_, Role::Text) => style,
            (_, Role::Strong) => style.add_modifier(Modifier::BOLD),
            (_, Role::Bar) => style.add_modifier(Modifier::REVERSED),
            (Self::Plain, Role::Faint) => style,
            (Self::Plain, Role::User | Role::Agent(_) | Role::Good) => style.add_modifier(Modifier::BOLD),
            (Self::Plain, Role::Warn | Role::Bad) => {
                style.add_modifier(Modifier::BOLD.union(Modifier::UNDERLINED))
            }
            (Self::Plain, Role::Key) => style.add_modifier(Modifier::UNDERLINED),
            (Self::Colour, Role::Faint) => style.fg(Color::DarkGray),
            (Self::Colour, Role::User) => style.fg(Color::Blue).add_modifier(Modifier::BOLD),
            (Self::Colour, Role::Agent(place)) => {
                style.fg(AGENT_COLOURS[place % AGENT_COLOURS.len()]).add_modifier(Modifier::BOLD)
            }
            (Self::Colour, Role::Good) => style.fg(Color::Green),
            (Self::Colour, Role::Warn) => style.fg(Color::Yellow),
            (Self::Colour, Role::Bad) => style.fg(Color::Red).add_modifier(Modifier::BOLD),
            (Self::Colour, Role::Key) => style.fg(Color::Cyan).add_modifier(Modifier::BOLD),
        }
    }
}

/// Returns how a risk label looks.
pub(crate) fn risk_role(risk: Risk) -> Role {
    match risk {
        Risk::Low => Role::Good,
        Risk::Medium => Role::Warn,
        Risk::High | Risk::Critical => Role::Bad,
    }
}

#[cfg(test)]
mod tests {
    use std::ffi::OsStr;

    use super::*;

    #[test]
    fn no_color_leaves_no_colour() {
        assert_eq!(Theme::choose(None), Theme::Colour);
        assert_eq!(Theme::choose(Some(OsStr::new(""))), Theme::Colour);
        let theme = Theme::choose(Some(OsStr::new("1")));
        let roles = [Role::Text, Role::Strong, Role::Faint, Role::User, Role::Agent(7), Role::Good]
            .into_iter()
            .chain([Role::Warn, Role::Bad, Role::Key, Role::Bar]);
        for role in roles {
            let style = theme.style(role);
            assert_eq!((style.fg, style.bg), (None, None), "{role:?}");
        }
    }
}
