//! The commands, one file each.

mod config;
mod demo;
mod doctor;
mod draw;
mod fixture;
mod params;
mod prove;
mod remote;
mod serve;
mod verify;

use cuzk_filecoin::Request;

use crate::args::{Args, Command, RequestArgs};
use crate::exit::{Exit, Failure};
use crate::files;

/// Runs the command that was asked for.
pub(crate) fn run(args: &Args) -> Result<(), Failure> {
    match &args.command {
        Command::Demo(demo) => demo::run(args, demo),
        Command::Prove(prove) => prove::run(args, prove),
        Command::Verify(verify) => verify::run(args, verify),
        Command::Fixture(fixture) => fixture::run(fixture),
        Command::Params(params) => params::run(args, params),
        Command::Config => config::run(args),
        Command::Doctor(doctor) => doctor::run(args, doctor),
        Command::Serve(serve) => serve::run(args, serve),
        Command::Submit(submit) => remote::submit(args, submit),
        Command::Await(wait) => remote::wait(args, wait),
        Command::Cancel(job) => remote::cancel(args, job),
        Command::Status(server) => remote::status(args, server),
        Command::Preload(circuit) => remote::preload(args, circuit),
        Command::Evict(circuit) => remote::evict(args, circuit),
    }
}

/// The request that the arguments name.
fn request(args: &RequestArgs) -> Result<Request, Failure> {
    if let Some(path) = &args.request {
        return Ok(Request::from_json(&files::read(path)?)?);
    }
    match (&args.c1, args.miner, args.sector) {
        (Some(path), Some(miner), Some(sector)) => {
            Ok(Request::from_c1(&files::read(path)?, miner, sector)?)
        }
        _ => Err(Failure::new(
            Exit::Usage,
            "want --request, or --c1 with --miner and --sector",
        )),
    }
}
