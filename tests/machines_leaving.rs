//! Servers of several machines that leave in order (`terral stop`), and invitations to come. Real
//! servers, real programs, a real network between namespaces. Not here: members that are lost
//! (`machines_fencing`), and whole servers in the simulation (`server`, `sim/peers/departing`).
#![allow(clippy::print_stdout)] // What is skipped is said.
#![cfg(not(loom))]

mod beside;
mod descendants;
mod launched;
mod namespaces;

use std::fs;
use std::path::PathBuf;
use std::process::{Child, Command, Output};
use std::time::Duration;

use launched::{said, until};
use namespaces::Machines;

/// Nobody waits for a member that has left; the protocol's patience is a minute.
const SOON: Duration = Duration::from_secs(30);

/// Machines, and a server on each that was started by hand.
struct Servers {
    servers: Vec<Option<Child>>,
    to: PathBuf,
    brings: bool,
    machines: Machines,
}

fn told(output: &Output) -> String {
    String::from_utf8_lossy(&output.stdout).into_owned()
}

impl Servers {
    /// So many machines, of which the first has a server.
    fn new(count: usize, brings: bool) -> Option<Self> {
        let machines = Machines::new(count)?;
        let to = machines.home().join("to");
        fs::create_dir(&to).expect("makes");
        let servers = (0..count).map(|_| None).collect();
        let mut servers = Servers { servers, to, brings, machines };
        servers.serve(0, &["--listen"]);
        Some(servers)
    }

    /// The same, of which all have one.
    fn all(count: usize, brings: bool) -> Option<Self> {
        let mut servers = Servers::new(count, brings)?;
        (1..count).for_each(|at| servers.join(at));
        Some(servers)
    }

    fn serve(&mut self, at: usize, options: &[&str]) {
        let to = self.to.display().to_string();
        let to = if self.brings { vec!["--to", &to] } else { Vec::new() };
        let mut command = self.machines.terral(at);
        command.args(["serve", "--memory", "256M", "--ready", "0"]).args(options).args(to);
        self.servers[at] = Some(command.spawn().expect("starts"));
        until("its server serves", || self.terral(at, &["status"]).status.success());
    }

    /// A new invitation, in a file.
    fn invitation(&self) -> String {
        let file = self.machines.home().join("invitation");
        // The server says where it is once it listens.
        until("there is an invitation", || {
            let invited = self.terral(0, &["invite"]);
            fs::write(&file, &invited.stdout).expect("writes");
            invited.status.success()
        });
        file.display().to_string()
    }

    fn join(&mut self, at: usize) {
        let invitation = self.invitation();
        self.serve(at, &["--join", &invitation]);
        until("it is in", || self.run(at, "ls /terral").status.success());
    }

    fn terral(&self, at: usize, words: &[&str]) -> Output {
        let mut command = self.machines.terral(at);
        descendants::ended_within(command.args(words).spawn().expect("starts"), SOON)
    }

    /// What a program of this machine says.
    fn run(&self, at: usize, script: &str) -> Output {
        self.terral(at, &["run", "--instance", "default", "--", "sh", "-c", script])
    }

    fn shows(&self, at: usize, script: &str) -> String {
        let output = self.run(at, script);
        assert!(output.status.success(), "{script}: {}", said(&output));
        told(&output)
    }

    /// A server ends as it is asked to, and its process with it.
    fn stops(&mut self, at: usize) -> String {
        let output = self.terral(at, &["stop"]);
        assert!(output.status.success(), "{}", said(&output));
        let server = self.servers[at].take().expect("it serves");
        let ended = descendants::ended_within(server, SOON);
        assert!(ended.status.success(), "{}", said(&ended));
        assert_eq!(self.machines.left(at), "", "in the memory of h{at}");
        said(&output)
    }

    /// Its process is killed as if by the system.
    fn is_killed(&mut self, at: usize) {
        let mut server = self.servers[at].take().expect("it serves");
        server.kill().expect("kills");
        server.wait().expect("waits");
    }

    fn there(&self, script: &str) -> String {
        let mut shell = Command::new("sh");
        told(&shell.args(["-c", script]).current_dir(&self.to).output().expect("a shell"))
    }
}

impl Drop for Servers {
    fn drop(&mut self) {
        for server in self.servers.iter_mut().flatten() {
            let _ = server.kill();
            let _ = server.wait();
        }
    }
}

#[test]
fn when_a_member_has_left_the_others_use_and_change_what_it_had_at_once() {
    let Some(mut servers) = Servers::all(3, true) else { return };
    servers.shows(0, "mkdir /terral/d; seq 100 > /terral/d/mine; cp /terral/d/mine /terral/top");
    servers
        .shows(1, "cd /terral; seq 300 > r; seq 9 > d/x; mkdir own; seq 5 > own/y; ln -s y own/l");
    servers.shows(2, "cd /terral; seq 7 > own/of2; cat r own/l > /dev/null");
    let stopped = servers.stops(1);
    assert!(stopped.contains("ended; all is in"), "{stopped}");
    for at in [0, 2] {
        let shown = servers.shows(
            at,
            "cd /terral; wc -l < r; cat d/x | wc -l; wc -l < own/l; wc -l < own/of2
            ls . d own | xargs",
        );
        let names = ".: d own r top d: mine x own: l of2 y\n";
        assert_eq!(shown, format!("300\n9\n5\n7\n{names}"), "{at}");
    }
    servers.shows(2, "cd /terral; mv own/y own/moved; echo more >> r; echo new > own/new");
    servers.shows(0, "cd /terral; rm d/x; touch new; wc -l < r | grep -q 301; cat own/new");
    let status = told(&servers.terral(0, &["status"]));
    assert!(status.contains("left: member 1") && !status.contains("lost"), "{status}");
    assert!(!status.contains("removed"), "{status}");
    // A machine that comes after that sees the same.
    servers.join(1);
    assert_eq!(servers.shows(1, "cd /terral; ls own | xargs; wc -l < r"), "l moved new of2\n301\n");
    servers.stops(1);
    servers.stops(2);
    servers.stops(0);
    assert_eq!(
        servers.there("ls . d own | xargs; wc -l < r"),
        ".: d new own r top d: mine own: l moved new of2\n301\n"
    );
}

#[test]
fn the_first_does_not_end_while_others_are_in_and_says_what_to_do() {
    let Some(mut servers) = Servers::all(2, true) else { return };
    servers.shows(1, "echo mine > /terral/y");
    servers.shows(0, "echo first > /terral/x");
    let refused = servers.terral(0, &["stop"]);
    let why = said(&refused);
    assert!(!refused.status.success() && why.lines().count() == 1, "{why}");
    for words in ["member 1 still in", "`terral stop` there", "`terral fence 1 --dead`", "--now"] {
        assert!(why.contains(words), "{words}: {why}");
    }
    assert_eq!(servers.shows(1, "cd /terral; cat x y; ls | xargs"), "first\nmine\nx y\n");
    servers.stops(1);
    servers.stops(0);
    assert_eq!(servers.there("cat x y"), "first\nmine\n");
}

#[test]
fn who_has_files_that_nobody_else_has_does_not_leave_unless_they_may_be_lost() {
    let Some(mut servers) = Servers::new(2, false) else { return };
    servers.join(1);
    servers.shows(1, "cd /terral; echo mine > f; mkdir d");
    servers.shows(0, "echo of0 > /terral/d/of0");
    let refused = servers.terral(1, &["stop"]);
    let why = said(&refused);
    assert!(!refused.status.success() && why.contains("--lose"), "{why}");
    assert_eq!(servers.shows(0, "cat /terral/f"), "mine\n");
    servers.shows(1, "rm /terral/f");
    servers.stops(1);
    assert_eq!(servers.shows(0, "cd /terral; ls; cat d/of0; echo > new"), "d\nof0\n");
    servers.join(1);
    servers.shows(1, "echo mine > /terral/g");
    let lost = servers.terral(1, &["stop", "--lose"]);
    assert!(lost.status.success(), "{}", said(&lost));
    let output = servers.run(0, "cat /terral/g");
    assert!(said(&output).contains("Input/output error"), "{}", said(&output));
    let status = told(&servers.terral(0, &["status"]));
    assert!(status.contains("/g: only member 2 had it"), "{status}");
    assert_eq!(servers.shows(0, "cat /terral/d/of0"), "of0\n");
}

#[test]
fn a_member_that_is_killed_while_it_leaves_comes_back_with_all_and_leaves_then() {
    let Some(mut servers) = Servers::all(2, true) else { return };
    servers.shows(1, "cd /terral; mkdir d; seq 40000 > d/f; seq 10 > g");
    for wait_ms in [0, 300, 600] {
        let mut stop = servers.machines.terral(1).arg("stop").spawn().expect("starts");
        std::thread::sleep(Duration::from_millis(wait_ms));
        let is_there = servers.terral(1, &["status"]).status.success();
        if !is_there {
            stop.wait().expect("it has left");
            break;
        }
        servers.is_killed(1);
        let _ = stop.kill();
        stop.wait().expect("waits");
        if servers.machines.left(1).is_empty() {
            break;
        }
        let server = servers.machines.terral(1).args(["serve", "--name", "default"]).spawn();
        servers.servers[1] = Some(server.expect("starts"));
        until("it serves, or has left", || {
            servers.terral(1, &["status"]).status.success() || servers.machines.left(1).is_empty()
        });
    }
    if !servers.machines.left(1).is_empty() {
        servers.stops(1);
    }
    let shown =
        servers.shows(0, "cd /terral; wc -l < d/f; wc -l < g; echo new > d/new; ls | xargs");
    assert_eq!(shown, "40000\n10\nd g\n");
    let status = told(&servers.terral(0, &["status"]));
    assert!(status.contains("left: member 1") && !status.contains("lost"), "{status}");
    servers.stops(0);
    assert_eq!(servers.there("wc -l < d/f; cat d/new"), "40000\nnew\n");
}

#[test]
fn a_second_server_with_a_used_invitation_is_refused_by_name_and_the_first_goes_on() {
    let Some(mut servers) = Servers::new(3, true) else { return };
    let invitation = servers.invitation();
    servers.serve(1, &["--join", &invitation]);
    until("it is in", || servers.run(1, "ls /terral").status.success());
    servers.shows(1, "echo mine > /terral/f");
    let to = servers.to.display().to_string();
    let second = ["serve", "--memory", "256M", "--join", &invitation, "--to", &to];
    let refused = servers.terral(2, &second);
    let why = said(&refused);
    let says = why.contains("was used by another server, which is member 1");
    assert!(!refused.status.success() && says && why.contains("`terral invite`"), "{why}");
    assert_eq!(servers.machines.left(2), "");
    assert_eq!(servers.shows(0, "cat /terral/f; echo more > /terral/g"), "mine\n");
    assert_eq!(servers.shows(1, "cat /terral/f /terral/g"), "mine\nmore\n");
    // Also once the first does not serve, as it comes back.
    servers.is_killed(1);
    assert!(!servers.terral(2, &second).status.success());
    servers.serve(1, &[]);
    until("it is in", || servers.run(1, "cat /terral/f").status.success());
    servers.join(2);
    assert_eq!(servers.shows(2, "cat /terral/f"), "mine\n");
}

#[test]
fn who_joins_without_the_permanent_directory_is_told_so_before_anything_else() {
    let Some(servers) = Servers::new(2, true) else { return };
    let refused = servers.terral(1, &["serve", "--join", &servers.invitation()]);
    let why = said(&refused);
    assert!(!refused.status.success() && why.lines().count() == 1, "{why}");
    assert!(why.contains("--to") && !why.contains("use it"), "{why}");
    assert_eq!(servers.machines.left(1), "");
}
