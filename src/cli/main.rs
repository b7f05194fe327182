//! `terral`: the command line. One file per verb; this one reads the command line and hands over.

#![deny(unsafe_code)]

mod batch;
mod units;

mod debt;

mod machine;
mod shown;

mod limits;

mod user;

mod report;
mod words;

mod knock;

mod claim;
mod instances;
mod origin;
mod orphans;
mod signals;
mod staging;

mod progress;
mod server;

mod elf;
mod same;

mod ahead;
mod supply;

mod recover;
mod search;
mod stop;

mod takeover;

mod bypass;
mod libc_files;
mod libraries;
mod shim;

mod program;

mod coverage;

mod lost;
mod past;

mod summary;
mod waits;

mod members;

mod everyone;
mod partition;

mod listing;

mod pool;

mod serve;
mod status;

mod cap;
mod container;
mod fence;
mod policy;
mod role;
mod rsh;
mod txn;

mod login;

mod launchers;

mod command;

mod lock;

mod strays;

mod entrance;
mod heard;
mod host;
mod voice;

mod remote;

mod ticket;

mod door;

mod gathering;

mod hosts;

mod account;
mod users;

mod join;

mod run;

mod copies;
mod files;
mod stat;
mod wait;

mod checks;

mod checks_users;

mod checks_run;

mod doctor_program;

mod doctor;

mod bench_place;

mod bench_worker;

mod bench_busy;

mod bench_host;

mod bench_cases;

mod bench_report;

mod bench_figure;

mod bench_commits;
mod bench_extra;
mod bench_locks;
mod bench_memory;
mod bench_names;
mod bench_objects;
mod bench_tree;

mod bench_session;

mod bench_make;
mod bench_mpi;
mod bench_preload;
mod bench_rights;
mod bench_slow;
mod bench_spill;
mod bench_sqlite;
mod bench_stalls;
mod bench_tar;

mod bench_git;

mod bench_pairs;

mod bench_against;

mod bench_link;

mod bench_sealed;

mod bench_peer_objects;

mod bench_peer;

mod bench_crew;

mod bench_beside;
mod bench_cluster;

mod bench_far_bytes;
mod bench_far_commits;
mod bench_far_names;
mod bench_far_objects;

mod bench_far_times;

mod bench_hosts;

mod bench;

mod completions;
mod man;

use clap::{CommandFactory, Parser, Subcommand};

/// A parallel file system in the memory of the machines of one job.
///
/// Programs read and write at memory speed; what they write arrives in a permanent directory while
/// they go on.
#[derive(Parser)]
#[command(name = "terral", version, after_help = report::EXIT_CODES, arg_required_else_help = true)]
struct Terral {
    /// Say only what went wrong: no progress, no summary of what went well
    #[arg(long, short, global = true)]
    quiet: bool,
    #[command(subcommand)]
    verb: Verb,
}

#[derive(Subcommand)]
enum Verb {
    Run(run::Arguments),
    Serve(serve::Arguments),
    Invite(partition::Arguments),
    Fence(fence::Arguments),
    Policy(policy::Arguments),
    Role(role::Arguments),
    Cap(cap::Arguments),
    Container(container::Arguments),
    Login(login::Login),
    Logout(login::Logout),
    Whoami(login::Whoami),
    Lock(lock::Arguments),
    Txn(txn::Arguments),
    Status(status::Arguments),
    Stat(stat::Arguments),
    Ls(files::Ls),
    Put(files::Put),
    Get(files::Get),
    Mkdir(files::Mkdir),
    Cat(files::Cat),
    Rm(files::Rm),
    Wait(wait::Arguments),
    Recover(recover::Arguments),
    Stop(stop::Arguments),
    Doctor(doctor::Arguments),
    Bench(bench::Arguments),
    Completions(completions::Arguments),
    #[command(hide = true)]
    BenchWorker(bench_worker::Arguments),
    #[command(hide = true)]
    BenchPeer(bench_peer::Arguments),
    #[command(hide = true)]
    Ask(serve::Ask),
    #[command(hide = true)]
    Host(host::Arguments),
    #[command(hide = true)]
    Join(join::Arguments),
    #[command(hide = true)]
    Same(same::Arguments),
    #[command(hide = true)]
    Arrived(ahead::Arguments),
    #[command(hide = true)]
    Man(man::Arguments),
}

fn main() -> std::process::ExitCode {
    if rsh::is_meant() {
        return rsh::main().into();
    }
    let terral = Terral::parse();
    report::be_quiet(terral.quiet);
    let done = match terral.verb {
        Verb::Run(arguments) => run::main(arguments),
        Verb::Serve(arguments) if arguments.users => users::serve(&arguments),
        Verb::Serve(arguments) => serve::main(arguments),
        Verb::Invite(arguments) => partition::invite(&arguments),
        Verb::Fence(arguments) => fence::main(&arguments),
        Verb::Policy(arguments) => policy::main(&arguments),
        Verb::Role(arguments) => role::main(&arguments),
        Verb::Cap(arguments) => cap::main(&arguments),
        Verb::Container(arguments) => container::main(&arguments),
        Verb::Login(arguments) => login::login(&arguments),
        Verb::Logout(arguments) => login::logout(&arguments),
        Verb::Whoami(arguments) => login::whoami(&arguments),
        Verb::Lock(arguments) => lock::main(&arguments),
        Verb::Txn(arguments) => txn::main(&arguments),
        Verb::Status(arguments) => status::main(&arguments),
        Verb::Stat(arguments) => stat::main(&arguments),
        Verb::Ls(arguments) => files::ls(&arguments),
        Verb::Put(arguments) => files::put(&arguments),
        Verb::Get(arguments) => files::get(&arguments),
        Verb::Mkdir(arguments) => files::mkdir(&arguments),
        Verb::Cat(arguments) => files::cat(&arguments),
        Verb::Rm(arguments) => files::rm(&arguments),
        Verb::Wait(arguments) => wait::main(&arguments),
        Verb::Recover(arguments) => recover::main(&arguments),
        Verb::Stop(arguments) => stop::main(&arguments),
        Verb::Doctor(arguments) => doctor::main(&arguments),
        Verb::Bench(arguments) => bench::main(&arguments),
        Verb::Completions(arguments) => completions::main(&arguments, &Terral::command()),
        Verb::BenchWorker(arguments) => bench_worker::main(&arguments),
        Verb::BenchPeer(arguments) => bench_peer::main(&arguments),
        Verb::Host(arguments) => host::main(&arguments),
        Verb::Join(arguments) => join::main(&arguments),
        Verb::Same(arguments) => same::main(&arguments),
        Verb::Arrived(arguments) => ahead::main(&arguments),
        Verb::Ask(arguments) => serve::ask(&arguments),
        Verb::Man(arguments) => man::main(&arguments, Terral::command()),
    };
    done.unwrap_or_else(|error| report::conclude(&error)).into()
}
