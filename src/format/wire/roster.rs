//! Who is in a partition and where, how one is let in, and what a server says of that to another.
//!
//! Not here: who decides what (`partition`), and how a member proves that it is one (`network`).

use std::fmt;
use std::net::SocketAddr;

use serde::{Deserialize, Serialize};

use super::answering::{Answers, Newcomer, is_users};
use super::capability::Revoked;
use super::containers::{Container, ContainerName, Group, Quota};
use super::digits;
use super::letting_go::{LettingGo, WHICH_MAX};
use super::moving::{Moving, Of};
use super::person::Person;
use super::placement::Placement;
use crate::frame;
use crate::ids::{Epoch, Member, Number, ServerId};
use crate::moment::Moment;
use crate::{Error, ErrorKind, Result};

/// Most addresses of one member.
pub const ADDRESSES_MAX: usize = 32;
/// Most policies.
pub const POLICIES_MAX: usize = 64;
/// Longest pattern of one, bytes.
pub const PATTERN_MAX: usize = 1024;
/// Most directories that one message hands over.
pub const HANDED_MAX: usize = 512;
/// Most members that one message says to be removed.
pub const REMOVED_MAX: usize = 1 << 14;
/// Version of an invitation.
const INVITATION: u16 = 4;
/// What the text of an invitation begins with.
const PREFIX: &str = "terral-invitation-";
/// Most bytes that the text of one stands for.
const TEXT_BYTES_MAX: usize = 4 << 10;

/// What one member has and nobody else: the seed of an Ed25519 key (RFC 8032). Not shown.
#[derive(Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
pub struct Secret(pub [u8; 32]);

impl fmt::Debug for Secret {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("Secret")
    }
}

/// The public half of a member's key.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
pub struct Key(pub [u8; 32]);

/// Which partition, and what a member of it has to be one.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Partition {
    /// Which.
    pub id: u128,
    /// What this member alone proves to have.
    pub secret: Secret,
    /// Whether they encrypt what they say to each other.
    pub encrypted: bool,
}

/// What is known of a member that was removed.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
pub enum Verdict {
    /// It had been dead before: its machine has another boot id, its launcher's step is gone.
    Dead,
    /// It may live, and go on until it hears of this: an administrator has said so, or the epoch
    /// of DIR has moved on.
    Fenced,
    /// It has left in order: it does nothing any more, has answered all that it was asked, and the
    /// permanent store, if there is one, has all that it had.
    Left,
}

/// What the control's table says of a member.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, Serialize, Deserialize)]
pub enum Standing {
    /// It is in, and this is its server.
    In(ServerId),
    /// It was removed; the heir decides what it decided, and may have been removed since.
    Removed {
        /// Another member that was in when this one was removed.
        heir: Member,
        /// Whether it may still do something.
        verdict: Verdict,
    },
}

/// A member, as the control knows it.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Seat {
    /// Which.
    pub member: Member,
    /// Whether it is in.
    pub standing: Standing,
    /// Where it can be reached; none as long as it has not been there.
    pub addresses: Vec<SocketAddr>,
}

/// By what a member proves who it is, and for whom it speaks.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Certificate {
    /// Which.
    pub member: Member,
    /// Who has its secret half is that member.
    pub key: Key,
    /// The user whose server it is, if it speaks for him alone: what it says for others is refused,
    /// and it is given nothing that he may not have. `None`: it is trusted with all.
    pub user: Option<Person>,
}

/// When others see what is written.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum Consistency {
    /// At once.
    #[default]
    Strict,
    /// Once it is committed: the file is closed or synced, or a lock of it taken or given back.
    Commit,
}

/// What was said of the files whose paths a pattern matches.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Policy {
    /// Of paths relative to the root: `*` is anything but `/`, `**` any directories.
    pub pattern: String,
    /// When others see what is written to them.
    pub consistency: Consistency,
}

/// All members there ever were, and what holds for all of them.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Roster {
    /// Grows with each change.
    pub version: u64,
    /// Grows with each change of who is in.
    pub epoch: Epoch,
    /// By member, in order.
    pub seats: Vec<Seat>,
    /// At most [`POLICIES_MAX`]. The last one that matches a path counts. They are said and written
    /// down beside it.
    #[serde(skip)]
    pub policies: Vec<Policy>,
    /// Of each member, in order of members. Said and written down beside it.
    #[serde(skip)]
    pub certificates: Vec<Certificate>,
    /// Where new bytes are. Said and written down beside it.
    #[serde(skip)]
    pub placement: Placement,
    /// Members with the roles *authn* and *authz* alone, in order. Said and written down beside it.
    #[serde(skip)]
    pub authorities: Vec<Member>,
    /// Who answers for users' servers, in order of these. Said and written down beside it.
    #[serde(skip)]
    pub answers: Vec<Answers>,
}

impl Roster {
    /// The seat of a member.
    pub fn seat(&self, member: Member) -> Option<&Seat> {
        self.seats.iter().find(|seat| seat.member == member)
    }

    /// By what a member proves who it is.
    pub fn certificate(&self, member: Member) -> Option<&Certificate> {
        self.certificates.iter().find(|it| it.member == member)
    }

    /// Whether a member speaks for one user alone.
    pub fn is_users(&self, member: Member) -> bool {
        self.user_of(member).is_some()
    }

    /// The user for whom alone a member speaks, if it does.
    pub fn user_of(&self, member: Member) -> Option<u32> {
        Some(self.certificate(member)?.user.as_ref()?.user)
    }

    /// Which member answers for a user's server.
    pub fn answers_for(&self, member: Member) -> Option<Member> {
        self.answers.iter().find(|it| it.member == member).map(|it| it.by)
    }

    /// Whether a member is in.
    pub fn is_in(&self, member: Member) -> bool {
        self.seat(member).is_some_and(|seat| matches!(seat.standing, Standing::In(_)))
    }
}

/// What lets one server, and no other, become a member.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Invitation {
    /// Of which partition.
    pub partition: Partition,
    /// Who it will be.
    pub me: Member,
    /// Its memory.
    pub server: ServerId,
    /// Who invites.
    pub control: Seat,
    /// By what that one proves who it is.
    pub key: Key,
    /// Where the root was born, if that is another.
    pub root: Option<Seat>,
    /// Whether all members bring their files to a permanent directory, in which is a sign with the
    /// partition's number.
    pub permanent: bool,
}

impl Invitation {
    /// As one word of text; who reads it is a member.
    ///
    /// # Errors
    /// None, of what this program has made.
    pub fn text(&self) -> Result<String> {
        let mut bytes = Vec::new();
        frame::write(&mut bytes, INVITATION, &frame::encode(self)?);
        Ok(PREFIX.to_owned() + &digits::text(&bytes))
    }

    /// What a text says; white space around it does not count.
    ///
    /// # Errors
    /// [`ErrorKind::Malformed`] if it is none, or was cut off; [`ErrorKind::Version`],
    /// [`ErrorKind::Corrupt`].
    pub fn of(text: &str) -> Result<Self> {
        let none = || Error::new(ErrorKind::Malformed, "no invitation (`terral invite` makes one)");
        let digits = text.trim().strip_prefix(PREFIX).ok_or_else(none)?;
        let bytes = digits::bytes(digits, TEXT_BYTES_MAX).ok_or_else(none)?;
        let found = frame::read(&bytes)?;
        frame::is_of(found.version, INVITATION)?;
        if found.rest.is_empty() { frame::decode(found.payload) } else { Err(none()) }
    }
}

/// All that the control says, by which all members go.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Rule {
    /// Who is in. What of it is said beside it is empty here.
    pub roster: Roster,
    /// By what members prove who they are.
    pub certificates: Vec<Certificate>,
    /// What is asked of some paths.
    pub policies: Vec<Policy>,
    /// All that was revoked.
    pub revoked: Vec<Revoked>,
    /// All containers.
    pub containers: Vec<Container>,
    /// Their quotas.
    pub quotas: Vec<(ContainerName, Quota)>,
    /// Where new bytes are.
    pub placement: Placement,
    /// Who is in which group.
    pub groups: Vec<Group>,
    /// Who says so, if that is not where the root was born.
    pub control: Option<Member>,
    /// Members with the roles *authn* and *authz* alone.
    pub authorities: Vec<Member>,
    /// Who answers for users' servers.
    pub answers: Vec<Answers>,
}

/// What servers say to each other of who is in.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub enum Control {
    /// By the control: this is so now. By another member that is trusted with all, to a user's
    /// server: so it is, and this one is the control.
    Roster(Box<Rule>),
    /// To the control: here I am.
    Here(Vec<SocketAddr>),
    /// To the control: say the roster again.
    Ask,
    /// By any: of a directory that gets another path.
    Moving(Of),
    /// To the control: what time have you? With who asks' own (`CLOCK_BOOTTIME`).
    AskTime(Moment),
    /// By the control: the partition's time (nanoseconds since 1970), some time after that.
    Time {
        /// As it was said by who asked.
        asked: Moment,
        /// What files are stamped with.
        time_ns: u64,
    },
    /// To the control: this version of the roster counts here. By a user's server to any that is
    /// trusted with all, also to one that is not the control: do you know more?
    Knows(u64),
    /// To the control: this member is about to leave, and these directories were born here: take
    /// them, at most [`HANDED_MAX`]. Said until they are taken.
    Hands(Vec<Number>),
    /// To the control: this member has left. Said until the roster says so.
    Leaves,
    /// To the control, first of all in a session: the instance of the server that is this member.
    Claims(u128),
    /// By the control, to who is none: why.
    Refuses(String),
    /// To a control that has taken over, first of all in a session: these were removed, at most
    /// [`REMOVED_MAX`].
    Removed(Vec<(Member, Standing)>),
    /// By any: of names that homes have let go.
    LettingGo(LettingGo),
    /// To the control: let in a server of this user, for which who says so answers. Said until it
    /// is answered.
    Invites {
        /// Who has the secret half is that server. By the same key it is the same one.
        key: Key,
        /// Whose it is.
        whom: Box<Newcomer>,
    },
    /// By the control: what has come of that.
    Invited {
        /// Who asked, by this.
        key: Key,
        /// An invitation without a secret, or why not.
        answer: Result<Box<Invitation>>,
    },
    /// To the control: a user's server is no more, for which who says so answers. Said until the
    /// roster says so.
    Gone {
        /// Which.
        member: Member,
        /// Whether it is known to do nothing any more.
        dead: bool,
    },
    /// To the control: for this user, as he is now, speak those of his servers for which who says
    /// so answers. Said until certificates say so.
    Speaks(Person),
}

/// A frame between two servers.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Said<'f> {
    /// A [`super::peers::Frame`].
    Protocol(&'f [u8]),
    /// Of who is in.
    Control(Control),
    /// Something of a file is asked.
    Question(&'f [u8]),
    /// That was answered.
    Answer(&'f [u8]),
    /// A part of the next [`Said::Protocol`], to be put before what that says.
    Part(&'f [u8]),
    /// A [`super::remembered::Memory`].
    Memory(&'f [u8]),
}

/// What a frame is; its first byte.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[repr(u8)]
pub enum Tag {
    /// See [`Said::Protocol`].
    Protocol = 0,
    /// See [`Said::Control`].
    Control = 1,
    /// See [`Said::Question`].
    Question = 2,
    /// See [`Said::Answer`].
    Answer = 3,
    /// See [`Said::Part`].
    Part = 4,
    /// See [`Said::Memory`].
    Memory = 5,
}

impl<'f> Said<'f> {
    /// What the bytes of a frame say.
    ///
    /// # Errors
    /// [`ErrorKind::Malformed`] for what no member sends.
    pub fn read(bytes: &'f [u8]) -> Result<Self> {
        let strange = || Error::new(ErrorKind::Malformed, "frame of a member: of no kind");
        let (tag, rest) = bytes.split_first().ok_or_else(strange)?;
        Ok(match *tag {
            tag if tag == Tag::Protocol as u8 => Said::Protocol(rest),
            tag if tag == Tag::Control as u8 => Said::Control(control(rest)?),
            tag if tag == Tag::Question as u8 => Said::Question(rest),
            tag if tag == Tag::Answer as u8 => Said::Answer(rest),
            tag if tag == Tag::Part as u8 => Said::Part(rest),
            tag if tag == Tag::Memory as u8 => Said::Memory(rest),
            _ => return Err(strange()),
        })
    }
}

fn control(bytes: &[u8]) -> Result<Control> {
    let said = frame::decode(bytes)?;
    let addresses: &[Vec<SocketAddr>] = match &said {
        Control::Here(addresses) => std::slice::from_ref(addresses),
        Control::Roster(..) | Control::Ask | Control::Knows(_) | Control::Moving(_) => &[],
        Control::AskTime(_) | Control::Time { .. } => &[],
        Control::Hands(_) | Control::Leaves | Control::Claims(_) | Control::Refuses(_) => &[],
        Control::Removed(_) | Control::LettingGo(_) => &[],
        Control::Invites { .. } | Control::Invited { .. } => &[],
        Control::Gone { .. } | Control::Speaks(_) => &[],
    };
    let sound = match &said {
        Control::Moving(Of::Moves(Some(moving))) => moving.is_sound(),
        Control::Moving(Of::Exchanges(moving, back)) => {
            Moving { back: Some(back.clone()), ..moving.clone() }.is_sound()
        }
        _ => true,
    };
    if matches!(&said, Control::Hands(directories) if directories.len() > HANDED_MAX) {
        return Err(Error::new(ErrorKind::Malformed, "frame of a member: too many directories"));
    }
    if matches!(&said, Control::Removed(gone) if gone.len() > REMOVED_MAX) {
        return Err(Error::new(ErrorKind::Malformed, "frame of a member: too many members"));
    }
    if matches!(&said, Control::LettingGo(names) if names.count() > WHICH_MAX) {
        return Err(Error::new(ErrorKind::Malformed, "frame of a member: too many names"));
    }
    let is_user = match &said {
        Control::Invites { whom, .. } => whom.is_sound(),
        Control::Speaks(user) => is_users(user),
        _ => true,
    };
    if !is_user {
        return Err(Error::new(ErrorKind::Malformed, "frame of a member: no user"));
    }
    if !sound {
        return Err(Error::new(ErrorKind::Malformed, "frame of a member: no directory's move"));
    }
    if addresses.iter().any(|addresses| addresses.len() > ADDRESSES_MAX) {
        return Err(Error::new(ErrorKind::Malformed, "frame of a member: too many addresses"));
    }
    Ok(said)
}

impl Control {
    /// Whether it is for the control: who is not that passes it over, or says who is.
    pub fn is_for_control(&self) -> bool {
        match self {
            Control::Here(_) | Control::Ask | Control::AskTime(_) | Control::Knows(_) => true,
            Control::Hands(_) | Control::Leaves | Control::Claims(_) | Control::Removed(_) => true,
            Control::Roster(_) | Control::Moving(_) | Control::Time { .. } => false,
            Control::Refuses(_) | Control::LettingGo(_) | Control::Invited { .. } => false,
            Control::Invites { .. } | Control::Gone { .. } | Control::Speaks(_) => true,
        }
    }

    /// The frame that says it.
    ///
    /// # Errors
    /// None, of what this program has made.
    pub fn frame(&self) -> Result<Vec<u8>> {
        let mut bytes = vec![Tag::Control as u8];
        bytes.extend(frame::encode(self)?);
        Ok(bytes)
    }
}

#[cfg(test)]
mod tests {
    use super::{Control, Invitation, Key, Partition, Said, Seat, Secret, Standing, Tag};
    use crate::ErrorKind;
    use crate::ids::{Member, ServerId};

    fn invitation() -> Invitation {
        let member = |number| Member::new(number).expect("14 bits");
        Invitation {
            partition: Partition { id: 7, secret: Secret([8; 32]), encrypted: true },
            me: member(3),
            server: ServerId(4),
            control: Seat {
                member: member(0),
                standing: Standing::In(ServerId(5)),
                addresses: vec![([10, 0, 0, 1], 6).into(), ([0_u16; 8], 9).into()],
            },
            key: Key([3; 32]),
            root: None,
            permanent: true,
        }
    }

    #[test]
    fn an_invitation_is_one_word_and_is_read_as_it_was_or_not_at_all() {
        let text = invitation().text().expect("is written");
        assert!(text.chars().all(|letter| letter.is_ascii_alphanumeric() || letter == '-'));
        assert_eq!(Invitation::of(&format!(" {text}\n")), Ok(invitation()));
        assert!(!format!("{:?}", invitation()).contains('8'), "it is a secret");
        for cut in 0..text.len() {
            assert!(Invitation::of(&text[..cut]).is_err(), "{cut}");
        }
        for at in 0..text.len() {
            let mut other = text.clone().into_bytes();
            other[at] = if other[at] == b'0' { b'1' } else { b'0' };
            let other = String::from_utf8(other).expect("text");
            assert!(other == text || Invitation::of(&other).is_err(), "{at}");
        }
        assert!(Invitation::of("terral-invitation-é0").is_err());
    }

    #[test]
    fn frames_are_of_six_kinds_and_no_other() {
        let here = Control::Here(vec![([127, 0, 0, 1], 80).into()]);
        let frame = here.frame().expect("is written");
        assert_eq!(Said::read(&frame), Ok(Said::Control(here)));
        assert_eq!(Said::read(&[Tag::Answer as u8, 9]), Ok(Said::Answer(&[9])));
        assert_eq!(Said::read(&[Tag::Part as u8, 9]), Ok(Said::Part(&[9])));
        assert_eq!(Said::read(&[Tag::Memory as u8, 9]), Ok(Said::Memory(&[9])));
        for strange in [&[][..], &[6], &[255, 1], &[Tag::Control as u8, 77]] {
            let read = Said::read(strange).map_err(|error| error.kind);
            assert_eq!(read, Err(ErrorKind::Malformed), "{strange:?}");
        }
        let many = Control::Here(vec![([127, 0, 0, 1], 80).into(); 33]);
        assert!(Said::read(&many.frame().expect("is written")).is_err());
    }
}
