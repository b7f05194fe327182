//! What starts another program, and is known well enough to tell which: pyenv's shims, scripts that
//! hand their name to pyenv, which finds the program of the version that is chosen; and R's.
//!
//! Not here: other scripts, whose programs nobody can tell without running them.

use std::ffi::OsStr;
use std::path::{Path, PathBuf};

/// A shim is shorter.
const SHIM_BYTES: u64 = 4096;
/// How a shim ends, around pyenv's directory.
const ENDING: (&str, &str) = ("exec \"", "/libexec/pyenv\" exec \"$program\" \"$@\"");
/// The version that is none of pyenv's.
const SYSTEM: &str = "system";

/// pyenv's directory, if this is one of its shims.
fn root(script: &Path) -> Option<PathBuf> {
    let length = std::fs::metadata(script).ok()?.len();
    let text = (length < SHIM_BYTES).then(|| std::fs::read_to_string(script))?.ok()?;
    let line = text.trim_end().lines().next_back()?;
    Some(line.strip_prefix(ENDING.0)?.strip_suffix(ENDING.1)?.into())
}

/// The versions that are chosen, separated as pyenv has them.
fn chosen(root: &Path, here: &Path) -> String {
    let said = std::env::var("PYENV_VERSION").ok().filter(|said| !said.is_empty());
    let file = || {
        let local = here.ancestors().map(|above| above.join(".python-version"));
        let text =
            local.chain([root.join("version")]).find_map(|f| std::fs::read_to_string(f).ok());
        text.map(|text| text.split_ascii_whitespace().collect::<Vec<_>>().join(":"))
    };
    said.or_else(file).filter(|said| !said.is_empty()).unwrap_or_else(|| SYSTEM.into())
}

/// The program in a version's directory, which may be named by the begin of its number.
fn in_version(root: &Path, version: &str, name: &OsStr) -> Option<PathBuf> {
    let plain = version.strip_prefix("python-").unwrap_or(version);
    let exact = [version, plain].map(|version| root.join("versions").join(version));
    let begin = format!("{plain}.");
    let number = |path: &PathBuf| -> Vec<u64> {
        let name = path.file_name().unwrap_or_default().to_string_lossy().into_owned();
        name.split('.').map(|part| part.parse().unwrap_or(0)).collect()
    };
    let all = std::fs::read_dir(root.join("versions")).into_iter().flatten().flatten();
    let latest = all
        .filter(|entry| entry.file_name().to_string_lossy().starts_with(&begin))
        .map(|entry| entry.path())
        .max_by_key(number);
    let mut places = exact.into_iter().chain(latest).map(|place| place.join("bin").join(name));
    places.find(|path| path.exists())
}

fn in_system(root: &Path, name: &OsStr) -> Option<PathBuf> {
    let path = std::env::var_os("PATH")?;
    let mut places = std::env::split_paths(&path).filter(|place| *place != root.join("shims"));
    places.find_map(|place| Some(place.join(name)).filter(|path| path.exists()))
}

/// R's script is shorter.
const R_BYTES: u64 = 65_536;
/// Where it says what its home is, and what it executes there.
const R_HOME: &str = "R_HOME_DIR=";
const R_PROGRAM: &str = "bin/exec/R";

/// What R's script executes, and for Rscript what the script beside it does.
fn behind_r(program: &Path) -> Option<PathBuf> {
    let script = match program.file_name()?.to_str()? {
        "R" => program.to_path_buf(),
        "Rscript" => program.with_file_name("R"),
        _ => return None,
    };
    let length = std::fs::metadata(&script).ok()?.len();
    let text = (length < R_BYTES).then(|| std::fs::read_to_string(&script))?.ok()?;
    let home = text.lines().find_map(|line| line.strip_prefix(R_HOME))?;
    Some(Path::new(home).join(R_PROGRAM)).filter(|path| path.is_file())
}

/// Where R's script has the linker look for libraries, for the program that it executes.
pub fn library_path(program: &Path) -> Option<PathBuf> {
    let home = program.to_str()?.strip_suffix(R_PROGRAM)?;
    Some(Path::new(home).join("lib"))
}

/// The program that `program` would start from the working directory `here`, if it is one of those.
pub fn behind(program: &Path, here: &Path) -> Option<PathBuf> {
    behind_pyenv(program, here).or_else(|| behind_r(program))
}

fn behind_pyenv(script: &Path, here: &Path) -> Option<PathBuf> {
    let (root, name) = (root(script)?, script.file_name()?);
    chosen(&root, here).split(':').find_map(|version| match version {
        SYSTEM => in_system(&root, name),
        version => in_version(&root, version, name),
    })
}

#[cfg(test)]
mod tests {
    use super::{behind, library_path};
    use std::fs;
    use std::path::Path;

    #[test]
    fn the_version_of_the_directory_goes_before_the_usual_one() {
        let home = tempfile::tempdir().unwrap();
        let root = home.path().join("pyenv");
        for version in ["3.9.2", "3.9.18", "3.11.7"] {
            fs::create_dir_all(root.join("versions").join(version).join("bin")).unwrap();
            fs::write(root.join("versions").join(version).join("bin/python3"), "").unwrap();
        }
        let shim = home.path().join("python3");
        let ending = "/libexec/pyenv\" exec \"$program\" \"$@\"";
        fs::write(&shim, format!("#!/bin/sh\nexec \"{}{ending}\n", root.display())).unwrap();
        fs::write(root.join("version"), "3.11.7\n").unwrap();
        let found = |here: &Path| behind(&shim, here).map(|path| path.display().to_string());
        if std::env::var_os("PYENV_VERSION").is_none() {
            assert!(found(home.path()).unwrap().contains("/3.11.7/"));
            let here = home.path().join("deep");
            fs::create_dir(&here).unwrap();
            fs::write(home.path().join(".python-version"), "3.9\n").unwrap();
            assert!(found(&here).unwrap().contains("/3.9.18/"));
        }
        let other = home.path().join("other");
        fs::write(&other, "#!/bin/sh\nexec python3\n").unwrap();
        assert_eq!(behind(&other, home.path()), None);
    }

    #[test]
    fn r_is_found_by_what_its_script_says() {
        let home = tempfile::tempdir().unwrap();
        let (bin, r) = (home.path().join("bin"), home.path().join("lib/R"));
        fs::create_dir_all(r.join("bin/exec")).unwrap();
        fs::create_dir(&bin).unwrap();
        fs::write(r.join("bin/exec/R"), "").unwrap();
        fs::write(bin.join("R"), format!("#!/bin/sh\nR_HOME_DIR={}\n", r.display())).unwrap();
        for name in ["R", "Rscript"] {
            assert_eq!(behind(&bin.join(name), home.path()), Some(r.join("bin/exec/R")));
        }
        assert_eq!(library_path(&r.join("bin/exec/R")), Some(r.join("lib")));
        fs::write(bin.join("R"), "#!/bin/sh\n").unwrap();
        assert_eq!(behind(&bin.join("R"), home.path()), None);
    }
}
