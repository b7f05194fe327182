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

/// The instances of this user, in the words of each shell.
const BASH_NAMES: &str = "compgen -W \"$(ls /dev/shm/terral-${EUID} 2>/dev/null)\" --";
const ZSH_NAMES: &str = ":{compadd -- /dev/shm/terral-$EUID/*(N\\:t)}'";
const FISH_NAMES: &str = " -r -f -a '(ls /dev/shm/terral-(id -u) 2>/dev/null)'";

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
    let text = String::from_utf8_lossy(&text);
    let lines: Vec<String> = text.lines().map(str::to_owned).collect();
    let mut out = with_instances(language, lines).join("\n");
    out.push('\n');
    out.into_bytes()
}

/// Where `--instance` is completed, the names that there are instead of files.
fn with_instances(language: Language, mut lines: Vec<String>) -> Vec<String> {
    for at in 0..lines.len() {
        let above = at.checked_sub(1).map_or("", |above| lines[above].trim());
        let instance = match language {
            Language::Bash => above == "--instance)",
            Language::Zsh => lines[at].starts_with("'--instance=["),
            Language::Fish => lines[at].contains(" -l instance "),
        };
        if instance {
            let (files, names) = match language {
                Language::Bash => ("compgen -f", BASH_NAMES),
                Language::Zsh => (":_files'", ZSH_NAMES),
                Language::Fish => (" -r -F", FISH_NAMES),
            };
            lines[at] = lines[at].replace(files, names);
        }
    }
    lines
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
    fn names_of_instances_are_offered_where_one_is_asked_for() {
        for language in Language::value_variants() {
            let text = String::from_utf8(text(*language, &crate::Terral::command())).unwrap();
            // `run`, `status`, `stop` and others have it.
            assert!(text.matches("/dev/shm/terral-").count() > 8, "{text}");
            // A colon ends what zsh does there.
            assert!(!text.contains("(N:t)"), "{text}");
        }
    }

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
