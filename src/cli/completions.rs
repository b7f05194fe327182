//! `terral completions SHELL`: what a shell needs to complete `terral`'s words, from the same
//! source as `--help`.

use std::io::Write;

use anyhow::Result;
use clap::{Args, Command, ValueEnum};
use clap_complete::Shell;

/// Writes what a shell needs to complete verbs and options
#[derive(Args)]
#[command(after_help = "\
Examples:
  terral completions bash > ~/.local/share/bash-completion/completions/terral
  terral completions zsh > ~/.zfunc/_terral    (a directory of $fpath)
  terral completions fish > ~/.config/fish/completions/terral.fish")]
pub struct Arguments {
    /// Whose language
    shell: Language,
}

#[derive(Clone, Copy, ValueEnum)]
enum Language {
    Bash,
    Zsh,
    Fish,
}

/// The command line without what is hidden, which clap_complete would offer.
fn shown(command: &Command) -> Command {
    let arguments = command.get_arguments().filter(|argument| !argument.is_hide_set()).cloned();
    let verbs = command.get_subcommands().filter(|verb| !verb.is_hide_set()).map(shown);
    let mut shown = Command::new(command.get_name().to_owned()).args(arguments).subcommands(verbs);
    if let Some(about) = command.get_about() {
        shown = shown.about(about.clone());
    }
    match command.get_version() {
        Some(version) => shown.version(version.to_owned()),
        None => shown,
    }
}

fn text(language: Language, command: &Command) -> Vec<u8> {
    let shell = match language {
        Language::Bash => Shell::Bash,
        Language::Zsh => Shell::Zsh,
        Language::Fish => Shell::Fish,
    };
    let mut text = Vec::new();
    clap_complete::generate(shell, &mut shown(command), "terral", &mut text);
    text
}

/// Writes it.
pub fn main(arguments: &Arguments, command: &Command) -> Result<u8> {
    // As a whole: clap_complete panics when it cannot write, as into a closed pipe.
    std::io::stdout().lock().write_all(&text(arguments.shell, command))?;
    Ok(0)
}

#[cfg(test)]
mod tests {
    use super::{Language, text};
    use clap::{CommandFactory, ValueEnum};

    #[test]
    fn what_is_hidden_is_not_offered() {
        for language in Language::value_variants() {
            let text = String::from_utf8(text(*language, &crate::Terral::command())).unwrap();
            for word in ["doctor", "no-wait", "completions"] {
                assert!(text.contains(word), "{word}");
            }
            for word in ["bench-worker", "launcher", "instance-directory"] {
                assert!(!text.contains(word), "{word}");
            }
        }
    }
}
