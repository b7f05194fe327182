//! How a server proves to etcd who it is, and by what it knows etcd: a file that nobody else can
//! read, a line each of `user`, `password`, `ca`, `certificate`, `key`.
//!
//! Invariant: what it says is shown nowhere: no `Debug` text has a password or a key.

use std::fmt;
use std::fs::File;
use std::io::Read;
use std::os::unix::fs::{MetadataExt, PermissionsExt};
use std::path::Path;

use terral_format::{Error, ErrorKind, Result};

/// Longest file that is read, bytes.
const BYTES_MAX: u64 = 1 << 20;

/// See the module.
#[derive(Clone, Default)]
pub struct Login {
    /// Name and password, where etcd asks for them.
    pub user: Option<(String, String)>,
    /// Certificates (PEM) of who vouches for etcd's.
    pub ca: Option<Vec<u8>>,
    /// The server's own certificates and key (PEM), where etcd asks for them.
    pub own: Option<(Vec<u8>, Vec<u8>)>,
}

impl fmt::Debug for Login {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("Login")
    }
}

fn refuse(path: &Path, why: impl fmt::Display) -> Error {
    Error::new(ErrorKind::Invalid, format!("{}: {why}", path.display()))
}

fn read_file(path: &Path, secret: bool) -> Result<Vec<u8>> {
    let failed = |error| Error::system(&error, path.display().to_string());
    let file = File::open(path).map_err(failed)?;
    let found = file.metadata().map_err(failed)?;
    if !found.is_file() {
        return Err(refuse(path, "no file"));
    }
    if secret && found.permissions().mode() & 0o077 != 0 {
        let owner = found.uid();
        return Err(refuse(path, format!("others than user {owner} can read it: chmod 600")));
    }
    let mut bytes = Vec::new();
    file.take(BYTES_MAX + 1).read_to_end(&mut bytes).map_err(failed)?;
    if bytes.len() as u64 > BYTES_MAX { Err(refuse(path, "too long")) } else { Ok(bytes) }
}

impl Login {
    /// What a file says. Files that it names are beside it, unless they are named by a whole path.
    ///
    /// # Errors
    /// If it, or one that it names, cannot be read, can be read by others, or makes no sense.
    pub fn read(path: &Path) -> Result<Self> {
        let text =
            String::from_utf8(read_file(path, true)?).map_err(|_| refuse(path, "no text"))?;
        let beside = path.parent().unwrap_or(Path::new("."));
        let (mut user, mut password, mut certificate, mut key) = (None, None, None, None);
        let mut login = Login::default();
        for line in text.lines().map(str::trim) {
            if line.is_empty() || line.starts_with('#') {
                continue;
            }
            let (word, rest) = line.split_once(char::is_whitespace).unwrap_or((line, ""));
            let rest = rest.trim();
            let place = beside.join(rest);
            match word {
                "user" => user = Some(rest.to_owned()),
                "password" => password = Some(rest.to_owned()),
                "ca" => login.ca = Some(read_file(&place, false)?),
                "certificate" => certificate = Some(read_file(&place, false)?),
                "key" => key = Some(read_file(&place, true)?),
                _ => {
                    let known = "user, password, ca, certificate, key";
                    return Err(refuse(path, format!("a line is none of {known}")));
                }
            }
        }
        login.user = match (user, password) {
            (None, None) => None,
            (Some(user), Some(password)) => Some((user, password)),
            _ => return Err(refuse(path, "user and password go together")),
        };
        login.own = match (certificate, key) {
            (None, None) => None,
            (Some(certificate), Some(key)) => Some((certificate, key)),
            _ => return Err(refuse(path, "certificate and key go together")),
        };
        Ok(login)
    }
}

#[cfg(test)]
mod tests {
    use std::fs;
    use std::os::unix::fs::PermissionsExt;

    use super::Login;

    #[test]
    fn a_login_is_read_from_a_file_of_ones_own_alone() {
        let place = tempfile::tempdir().expect("directory");
        let file = place.path().join("login");
        let write = |text: &str, mode| {
            fs::write(&file, text).expect("written");
            fs::set_permissions(&file, fs::Permissions::from_mode(mode)).expect("mode");
            Login::read(&file)
        };
        let login = write("# etcd's\nuser terral\npassword a b\n", 0o600).expect("is one");
        assert_eq!(login.user, Some(("terral".into(), "a b".into())));
        assert_eq!(format!("{login:?}"), "Login");
        for (text, mode) in [
            ("user terral\npassword x\n", 0o640),
            ("user terral\n", 0o600),
            ("certificate nowhere\n", 0o600),
            ("pasword x\n", 0o600),
        ] {
            let refused = write(text, mode).expect_err("is none");
            assert!(!refused.context.contains("pasword"), "what is secret is not said: {refused}");
        }
    }
}
