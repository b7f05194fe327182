//! `terral man DIR`: the manual pages, one for each verb, from the same words as `--help`.

use std::io::Write;
use std::path::PathBuf;

use anyhow::{Context, Result};
use clap::{Arg, Args, Command};
use clap_mangen::Man;

use crate::report::EXIT_CODES;

/// Writes the manual pages into a directory
#[derive(Args)]
pub struct Arguments {
    /// An existing directory
    directory: PathBuf,
}

/// Writes them.
pub fn main(arguments: &Arguments, command: Command) -> Result<u8> {
    for (name, page) in pages(command)? {
        let path = arguments.directory.join(name);
        std::fs::write(&path, page).with_context(|| path.display().to_string())?;
    }
    Ok(0)
}

/// File names and texts.
fn pages(mut command: Command) -> Result<Vec<(String, Vec<u8>)>> {
    command.build();
    let verbs = command.get_subcommands().filter(|verb| !verb.is_hide_set());
    let verbs = verbs.filter(|verb| verb.get_name() != "help");
    verbs.chain([&command]).map(page).collect()
}

fn page(command: &Command) -> Result<(String, Vec<u8>)> {
    let (man, mut out) = (Man::new(command.clone()), Vec::new());
    man.render_title(&mut out)?;
    man.render_name_section(&mut out)?;
    out.write_all(synopsis(command).as_bytes())?;
    man.render_description_section(&mut out)?;
    man.render_options_section(&mut out)?;
    if command.get_subcommands().any(|verb| !verb.is_hide_set()) {
        man.render_subcommands_section(&mut out)?;
    } else {
        let more = command.get_after_help().map(ToString::to_string).unwrap_or_default();
        let (notes, examples) = more.split_at(more.find("Example").unwrap_or(more.len()));
        section(&mut out, "NOTES", notes, false)?;
        let examples = examples.split_once('\n').map_or("", |(_, examples)| examples);
        section(&mut out, "EXAMPLES", examples, true)?;
    }
    let codes = EXIT_CODES.split_once('\n').map_or(EXIT_CODES, |(_, codes)| codes);
    section(&mut out, "EXIT STATUS", codes, true)?;
    Ok((man.get_filename(), out))
}

fn escaped(text: &str) -> String {
    text.replace('\\', "\\e").replace('-', "\\-")
}

/// The command with its options and their values.
fn synopsis(command: &Command) -> String {
    let name = command.get_bin_name().unwrap_or(command.get_name());
    let mut parts = vec![format!("\\fB{}\\fR", escaped(name))];
    let shown = command.get_arguments().filter(|argument| !argument.is_hide_set());
    parts.extend(shown.filter(|argument| argument.get_id() != "help").map(synopsis_of));
    if command.has_subcommands() {
        parts.push("\\fIVERB\\fR ...".into());
    }
    format!(".SH SYNOPSIS\n{}\n", parts.join(" "))
}

fn synopsis_of(argument: &Arg) -> String {
    let takes = argument.get_action().takes_values();
    let names = argument.get_value_names().unwrap_or_default();
    let names: Vec<String> =
        names.iter().map(|name| format!("\\fI{}\\fR", escaped(name))).collect();
    let value = if takes { names.join(" ") } else { String::new() };
    let text = match (argument.get_long(), argument.get_short()) {
        (Some(long), _) => format!("\\-\\-{} {value}", escaped(long)).trim_end().to_owned(),
        (None, Some(short)) => format!("\\-{short} {value}").trim_end().to_owned(),
        (None, None) => value,
    };
    if argument.is_required_set() { text } else { format!("[{text}]") }
}

/// A section, if it has a text; `as_is` keeps its lines.
fn section(out: &mut Vec<u8>, title: &str, text: &str, as_is: bool) -> Result<()> {
    if text.trim().is_empty() {
        return Ok(());
    }
    writeln!(out, ".SH {title}")?;
    if as_is {
        writeln!(out, ".nf")?;
    }
    for line in text.trim_end().lines() {
        match line {
            "" => writeln!(out, ".PP")?,
            // What begins with a dot or a quote would be an instruction.
            line => writeln!(out, "\\&{}", escaped(line))?,
        }
    }
    if as_is {
        writeln!(out, ".fi")?;
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::pages;
    use clap::CommandFactory;

    #[test]
    fn every_page_has_values_and_exit_status_and_nothing_extra() {
        let pages = pages(crate::Terral::command()).unwrap();
        assert!(pages.iter().any(|(name, _)| name == "terral.1"));
        for (name, page) in &pages {
            let page = String::from_utf8(page.clone()).unwrap();
            assert!(page.contains(".SH EXIT STATUS\n.nf\n"), "{name}");
            assert!(page.contains("data is still owed"), "{name}");
            assert!(!page.contains(".SH EXTRA"), "{name}");
            if name == "terral-serve.1" {
                assert!(page.contains("[\\-\\-to \\fIDIR\\fR]"), "{page}");
                assert!(page.contains(".SH EXAMPLES\n"), "{page}");
            }
        }
        assert!(!pages.iter().any(|(name, _)| name.contains("bench-worker")));
    }
}
