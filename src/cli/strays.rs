//! Files that programs wrote past Terral, under its prefix: they are kept, where they can be found.

use std::path::Path;

use anyhow::{Context, Result};
use terral_client::Status;

/// Brings what programs wrote into the shadow directory, past Terral, to the permanent directory.
///
/// # Errors
/// If it cannot be copied there.
pub fn save(instance: &Path, status: &Status, name: &str) -> Result<Vec<String>> {
    let shadow = instance.join("shadow");
    let is_empty = std::fs::read_dir(&shadow).is_ok_and(|mut entries| entries.next().is_none());
    let (false, Some(directory)) = (is_empty, &status.backing) else { return Ok(Vec::new()) };
    let mut saved = Vec::new();
    copy_tree(&shadow, &Path::new(directory).join(format!("strays-of-{name}")), &mut saved)?;
    Ok(saved)
}

fn copy_tree(from: &Path, to: &Path, saved: &mut Vec<String>) -> Result<()> {
    let shown = || to.display().to_string();
    std::fs::create_dir_all(to).with_context(shown)?;
    for entry in std::fs::read_dir(from).with_context(|| from.display().to_string())? {
        let entry = entry?;
        let target = to.join(entry.file_name());
        if entry.file_type()?.is_dir() {
            copy_tree(&entry.path(), &target, saved)?;
        } else if entry.file_type()?.is_file() {
            std::fs::copy(entry.path(), &target).with_context(shown)?;
            saved.push(target.display().to_string());
        }
    }
    Ok(())
}
