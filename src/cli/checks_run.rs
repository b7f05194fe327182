//! What the doctor says of the run that it was started in: whether files under the prefix are
//! served to a process here, and if not, where the environment was lost or what this machine lacks.
//! Asked by a rank (`mpiexec … terral doctor`), on the machine that it is on.
//!
//! Not here: what the machine offers (`checks`).

use std::env;
use std::ffi::OsString;
use std::path::{Path, PathBuf};

use crate::checks::{Check, Verdict};
use crate::command::SPREAD;
use crate::instances;
use crate::members::this;
use crate::server::LIBRARY;
use crate::ticket::Ticket;

const NAME: &str = "run";
/// Who has started this, by a variable of its own, and how it passes an environment on.
const LAUNCHERS: [(&str, &str, &str); 5] = [
    (
        "OMPI_COMM_WORLD_RANK",
        "a rank of Open MPI",
        "start mpiexec under `terral run` (--hosts or --spread, which have it pass the environment \
         on), or mpiexec -x LD_PRELOAD -x TERRAL_INSTANCE -x TERRAL_PREFIX -x TERRAL_DIR",
    ),
    (
        "SLURM_STEP_ID",
        "a task of Slurm",
        "start srun under `terral run`, and without --export=NONE (SLURM_EXPORT_ENV)",
    ),
    (
        "PMI_RANK",
        "a rank of MPI",
        "start mpiexec under `terral run`, and without -genvnone and -envnone",
    ),
    (
        "PMIX_RANK",
        "a rank of MPI",
        "start its launcher under `terral run`, and have it pass the \
         environment on",
    ),
    (
        "SSH_CONNECTION",
        "in a session of ssh, which passes no environment on",
        "for programs of a run give it by name: ssh HOST \"LD_PRELOAD=$LD_PRELOAD \
         TERRAL_INSTANCE=$TERRAL_INSTANCE TERRAL_PREFIX=$TERRAL_PREFIX PROGRAM\"",
    ),
];

/// What of a run has come here.
struct Given<'g>(&'g dyn Fn(&str) -> Option<OsString>);

fn check(verdict: Verdict, found: String, advice: Option<String>) -> Check {
    Check { name: NAME, verdict, found, advice }
}

fn fails(found: impl Into<String>, advice: impl Into<String>) -> Check {
    check(Verdict::Fail, found.into(), Some(advice.into()))
}

/// Of the run that this was started in; nothing if nothing looks like one.
pub fn run() -> Option<Check> {
    let set = |name: &str| env::var_os(name).filter(|value| !value.is_empty());
    let given = Given(&set);
    match set("TERRAL_INSTANCE") {
        Some(instance) => Some(given.of_run(&PathBuf::from(instance))),
        None => given.of_none(),
    }
}

impl Given<'_> {
    /// The environment of no run came here.
    fn of_none(&self) -> Option<Check> {
        let launcher = LAUNCHERS.iter().find(|(name, ..)| (self.0)(name).is_some());
        let (variable, what, advice) = launcher?;
        let found = format!("{what}, without the environment of a `terral run`");
        // Who only looks at a machine is in one, too.
        let is_shell = *variable == "SSH_CONNECTION";
        let verdict = if is_shell { Verdict::Ok } else { Verdict::Warn };
        Some(check(verdict, found, Some((*advice).to_owned())))
    }

    fn of_run(&self, instance: &Path) -> Check {
        let (name, host) = (instances::name_of(instance), this());
        let preloaded = (self.0)("LD_PRELOAD").unwrap_or_default();
        let mut entries = preloaded.as_encoded_bytes().split(|byte| b": ".contains(byte));
        let is_ours = |entry: &&[u8]| entry.ends_with(LIBRARY.as_bytes());
        let library = entries.find(is_ours).map(|entry| String::from_utf8_lossy(entry).to_string());
        let Some(library) = library else {
            return fails(
                format!("of the run {name}, but LD_PRELOAD was lost on the way here"),
                "have the launcher pass LD_PRELOAD on, too (mpiexec -x LD_PRELOAD)",
            );
        };
        if !Path::new(&library).exists() {
            return fails(
                format!("of the run {name}, but {library} is not on this machine"),
                format!(
                    "install it at that path, or `terral run --hosts {host},…`, which sends it"
                ),
            );
        }
        if instance.is_absolute() && instance.parent() != Some(&instances::base()) {
            let user = rustix::process::geteuid().as_raw();
            return fails(
                format!("of the run {name} of another user than {user}, who is here"),
                "be the same user on all machines",
            );
        }
        if terral_server::is_served(instance) {
            return check(Verdict::Ok, format!("of the run {name}, which is served here"), None);
        }
        self.unserved(&name, &host)
    }

    /// There is no server of this run here.
    fn unserved(&self, name: &str, host: &str) -> Check {
        let found = format!("no server of the run {name} is on this machine, {host}");
        let hosts = format!("`terral run --hosts {host},…`, which starts one before COMMAND");
        let spread = (self.0)(SPREAD).and_then(|both| both.into_string().ok());
        let Some((program, ticket)) = spread.as_deref().and_then(|both| both.split_once(':'))
        else {
            return fails(found, format!("{hosts}, or `terral run --spread`"));
        };
        if !Path::new(program).exists() {
            let found = format!("{found}, and {program} is not there to start one");
            return fails(found, format!("install it at that path, or {hosts}"));
        }
        if let Err(error) = Ticket::read(Path::new(ticket)) {
            return fails(format!("{found}, and none can join: {error:#}"), hosts);
        }
        let found = format!("{found}; the first program that uses the files starts one (--spread)");
        check(Verdict::Ok, found, None)
    }
}

#[cfg(test)]
mod tests {
    use std::ffi::OsString;

    use super::{Given, Verdict};
    use crate::instances;

    fn said(set: &[(&str, &str)]) -> Option<(Verdict, String)> {
        let get = |name: &str| {
            set.iter().find(|(of, _)| *of == name).map(|(_, value)| OsString::from(value))
        };
        let given = Given(&get);
        let check = match get("TERRAL_INSTANCE") {
            Some(instance) => given.of_run(&instances::base().join(instance)),
            None => given.of_none()?,
        };
        Some((check.verdict, format!("{}\n{}", check.found, check.advice.unwrap_or_default())))
    }

    #[test]
    fn what_has_lost_the_environment_is_told_by_who_started_it() {
        assert_eq!(said(&[("HOME", "/root")]), None);
        for (name, why) in [
            ("OMPI_COMM_WORLD_RANK", "mpiexec -x LD_PRELOAD -x TERRAL_INSTANCE"),
            ("SLURM_STEP_ID", "without --export=NONE"),
            ("PMI_RANK", "-genvnone"),
        ] {
            let (verdict, said) = said(&[(name, "0"), ("SSH_CONNECTION", "x")]).expect("is told");
            assert!(verdict == Verdict::Warn && said.contains(why), "{said}");
        }
        let (verdict, said) = said(&[("SSH_CONNECTION", "x")]).expect("is told");
        assert!(verdict == Verdict::Ok && said.contains("TERRAL_PREFIX=$TERRAL_PREFIX"), "{said}");
    }

    #[test]
    fn what_a_machine_lacks_is_told_with_what_to_do() {
        let run = ("TERRAL_INSTANCE", "surely-no-run");
        let fails = |set: &[(&str, &str)], why: &[&str]| {
            let (verdict, said) = said(set).expect("is told");
            assert_eq!(verdict, Verdict::Fail, "{said}");
            why.iter().for_each(|why| assert!(said.contains(why), "{why}: {said}"));
        };
        fails(&[run, ("LD_PRELOAD", "/other.so")], &["LD_PRELOAD was lost", "-x LD_PRELOAD"]);
        let missing = ("LD_PRELOAD", "/nowhere/libterral_preload.so");
        fails(&[run, missing], &["is not on this machine", "--hosts"]);
        let home = tempfile::tempdir().expect("directory");
        let there = home.path().join("libterral_preload.so");
        std::fs::write(&there, "").expect("writes");
        let both = format!("/other.so:{}", there.display());
        let loaded = ("LD_PRELOAD", &*both);
        fails(&[run, loaded], &["no server of the run surely-no-run", "--hosts", "--spread"]);
        let spread = ("TERRAL_SPREAD", "/nowhere/terral:/nowhere/ticket");
        fails(&[run, loaded, spread], &["/nowhere/terral is not there"]);
    }
}
