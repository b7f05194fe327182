//! Groups in containers' lists: who is in one may what its entry says, as the list of principals
//! says it, from the next start of the server or the next login on, for files that are open, too.
//! With `terral`, keys of OpenSSH, and real programs. Not here: lists of people (`containers`).
#![cfg(not(loom))]

mod beside;
mod files;
mod house;
mod keys;
mod process;

use files::WRITE;
use house::{House, text};
use keys::{private, public};
use terral_client::{Client, ErrorKind, OpenHow, authorize, read_credential};

/// Who is listed, by the number of his key.
const PEOPLE: [&str; 3] = ["alice", "pilot", "eve"];

#[test]
fn role() {
    process::play(128, &[]);
}

impl House {
    /// With `results/data`, whoever is listed has logged in, and groups as these lines say them.
    fn new(groups: &str) -> Self {
        let house = House::empty();
        house.list(groups);
        let house = house.started();
        for (at, name) in PEOPLE.iter().enumerate() {
            house.write(&format!("key{at}"), private(at as u8 + 1));
            house.logs_in(at, name);
        }
        house.owner().make_directory(b"results", 0o777).expect("makes");
        files::open(&house.owner(), "results/data").write(b"data").expect("writes");
        house
    }

    /// Has these lines behind those of people.
    fn list(&self, groups: &str) {
        let line = |(at, name): (usize, &&str)| {
            format!("{name} read,list,write,create,remove key {}\n", public(at as u8 + 1))
        };
        let people: String = PEOPLE.iter().enumerate().map(line).collect();
        self.write("principals", people + groups);
    }

    fn logs_in(&self, at: usize, into: &str) {
        self.ask(&["login", "-q", "--key", &format!("key{at}"), "-o", into]);
    }

    fn acts(&self, who: &str) -> Client {
        let credential = read_credential(&self.file(who)).expect("is one");
        let issued = authorize(&self.instance(), &credential, false).expect("is good");
        Client::connect_with(&self.instance(), Some(issued)).expect("connects")
    }

    /// What `terral container` says, and whether it has done it.
    fn container(&self, arguments: &str) -> (bool, String) {
        let words: Vec<&str> = std::iter::once("container").chain(arguments.split(' ')).collect();
        let output = self.terral(&words).output().expect("terral");
        (output.status.success(), text(&output))
    }

    /// Who of all people may read what is there.
    fn readers(&self) -> Vec<&'static str> {
        let reads = |who: &&str| {
            let output = self.run(Some(&self.file(who)), "cat /terral/results/data");
            let said = text(&output);
            assert!(said == "data" || said.contains("ermission denied"), "{who}: {said}");
            output.status.success()
        };
        PEOPLE.into_iter().filter(reads).collect()
    }
}

#[test]
fn a_group_changed_in_the_list_of_principals_changes_who_may() {
    let house = House::new("group staff = key:alice key:pilot\n");
    let create = "create results --at results --allow group:staff=read,list,write";
    assert_eq!(house.container(create), (true, String::new()));
    assert_eq!(house.readers(), ["alice", "pilot"]);
    let pilot = house.acts("pilot");
    let open = pilot.open(b"results/data", OpenHow { create: false, ..WRITE }).expect("opens");
    open.write_at(b"d", 0).expect("writes");
    let (_, shown) = house.container("show results");
    assert!(shown.ends_with("group:staff  read,write,list\n"), "{shown}");

    // At a start.
    house.list("group staff = key:alice key:eve\n");
    assert_eq!(house.readers(), ["alice", "pilot"], "as it was read");
    let house = house.started();
    assert_eq!(house.readers(), ["alice", "eve"]);
    assert_eq!(open.write_at(b"d", 0).map_err(|error| error.kind), Err(ErrorKind::Denied));
    // And at a login, whosever.
    house.list("group staff = key:pilot\n");
    house.logs_in(2, "again");
    assert_eq!(house.readers(), ["pilot"]);
    open.write_at(b"d", 0).expect("he may again, with what he has open");
    // A server that finds no good list goes by what it knew, and nobody logs in.
    house.list("group staff = key:pilot group:staff\n");
    let house = house.started();
    assert_eq!(house.readers(), ["pilot"]);
    let output = house.terral(&["login", "--key", "key0", "-o", "no"]).output().expect("terral");
    assert!(
        text(&output).contains("line 4: group:staff: a group within a group"),
        "{}",
        text(&output)
    );
    let audit = house.audit().into_iter().filter(|line| line["what"] == "group");
    let members: Vec<String> = audit.map(|line| line["members"].to_string()).collect();
    let expected =
        [r#"["key:alice","key:pilot"]"#, r#"["key:alice","key:eve"]"#, r#"["key:pilot"]"#];
    assert_eq!(members, expected);
}

#[test]
fn his_own_entry_counts_more_than_his_groups_and_one_that_is_denied_more_than_others() {
    let house = House::new("group staff = key:alice key:pilot\ngroup guests = key:pilot key:eve\n");
    house.container("create results --at results --allow others=read,list");
    assert_eq!(house.readers(), PEOPLE);
    house.container("set results --deny group:guests --allow group:staff=read,list");
    assert_eq!(house.readers(), ["alice"]);
    house.container("set results --allow key:eve=read,list");
    assert_eq!(house.readers(), ["alice", "eve"]);
}

#[test]
fn a_group_that_is_not_there_is_refused_in_one_line() {
    let house = House::new("group staff = key:alice\n");
    house.container("create results --at results");
    for (change, why) in [
        ("set results --allow group:stuff=read", "group stuff: the list of principals has none"),
        ("create more --at more --allow group:stuff=read", "group stuff: the list of principals"),
        ("set results --deny group:stuff", "group stuff: the list of principals has none"),
        ("set results --allow group:=read", "name of a principal"),
        ("set results --allow group:staff=admin", "admin is the owner's"),
    ] {
        let (done, said) = house.container(change);
        assert!(!done && said.contains(why), "{change}: {said}");
        assert!(said.lines().count() == 1 || said.contains("--help"), "{change}: {said}");
    }
    assert_eq!(house.readers(), [""; 0]);
}
