//! The command line.

use std::path::PathBuf;

use clap::{Args as ClapArgs, Parser, Subcommand, ValueEnum};
use cuzk_filecoin::{ProofKind, SectorSize};

use crate::exit::Exit;

/// Groth16 proofs for Filecoin storage, verified before they leave.
#[derive(Debug, Parser)]
#[command(name = "cuzk", version, after_help = Exit::HELP)]
pub(crate) struct Args {
    /// Configuration file (TOML); `cuzk config` prints one with every key.
    #[arg(long, global = true, value_name = "FILE")]
    pub(crate) config: Option<PathBuf>,
    /// Overrides a key of the configuration; may be given again.
    #[arg(long, global = true, value_name = "KEY=VALUE")]
    pub(crate) set: Vec<String>,
    /// Prints the result as JSON.
    #[arg(long, global = true)]
    pub(crate) json: bool,
    /// How much is logged to standard error.
    #[arg(long, global = true, value_enum, default_value_t = LogLevel::Warn)]
    pub(crate) log: LogLevel,
    #[command(subcommand)]
    pub(crate) command: Command,
}

/// How much is logged.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
pub(crate) enum LogLevel {
    Error,
    Warn,
    Info,
    Debug,
}

#[derive(Debug, Subcommand)]
pub(crate) enum Command {
    /// Makes a fixture and a test key, proves, verifies, and says where time and
    /// memory went.
    Demo(DemoArgs),
    /// Proves a request.
    Prove(ProveArgs),
    /// Checks a proof of a request.
    Verify(VerifyArgs),
    /// Makes a synthetic request that the stock vanilla verifiers accept.
    Fixture(FixtureArgs),
    /// Generates, inspects and checks keys.
    #[command(subcommand)]
    Params(ParamsCommand),
    /// Prints the effective configuration, each value with its origin.
    Config,
    /// Says what this machine can prove, and what is missing for the rest.
    ///
    /// The exit code is 1 if nothing can be proved since device.policy is "require-gpu"
    /// and no device that the configuration names can be used. Keys that are missing or
    /// cannot be used are told and change nothing of it.
    Doctor(DoctorArgs),
    /// Serves requests over gRPC until a signal ends it.
    ///
    /// The first SIGTERM or SIGINT drains it: new jobs are refused, those it has are
    /// finished, for serve.drain_seconds at most. A second one ends it at once. The exit
    /// code is 0 if every job had ended, 1 if jobs were left unfinished.
    ///
    /// While it runs, /trace and /timeline.svg beside /metrics have the last
    /// engine.spans_max spans; --trace and --timeline write them when it ends.
    Serve(ServeArgs),
    /// Hands a request to a server and prints the id of its job.
    ///
    /// A request that the server has proved already, same request_id and same content, is
    /// not proved again: the id is that of the finished job, and `await` gives the same
    /// proof for as long as the server keeps it (serve.results_kept_seconds,
    /// serve.results_kept_max). One that failed or was cancelled is tried again.
    Submit(SubmitArgs),
    /// Waits for a job of a server.
    Await(AwaitArgs),
    /// Gives a job of a server up.
    Cancel(JobArgs),
    /// Says what a server holds and does.
    Status(ServerArgs),
    /// Has a server load a key.
    Preload(CircuitIdArgs),
    /// Has a server drop a key that no job uses.
    Evict(CircuitIdArgs),
}

impl Command {
    /// Whether the command needs the processor that the binary was built for. The
    /// others say what is wrong, so they run anywhere.
    pub(crate) fn computes(&self) -> bool {
        !matches!(self, Self::Config | Self::Doctor(_))
    }
}

/// A kind and a size: which circuit.
#[derive(Debug, ClapArgs)]
pub(crate) struct CircuitArgs {
    /// Proof kind: porep, snap, wpost or winning.
    #[arg(long)]
    pub(crate) kind: ProofKind,
    /// Sector size: 2KiB, 8MiB, 512MiB, 32GiB or 64GiB.
    #[arg(long, value_name = "SIZE", default_value = "2KiB")]
    pub(crate) sector_size: SectorSize,
}

/// Where keys are.
#[derive(Debug, ClapArgs)]
pub(crate) struct KeyArgs {
    /// Directory of the key files [default: params.directory of the configuration,
    /// or FIL_PROOFS_PARAMETER_CACHE, or the standard place].
    #[arg(long, value_name = "DIR")]
    pub(crate) params: Option<PathBuf>,
    /// Accepts generated, insecure keys.
    #[arg(long)]
    pub(crate) allow_test_params: bool,
}

/// Which proof is asked for.
#[derive(Debug, ClapArgs)]
#[group(required = true)]
pub(crate) struct RequestArgs {
    /// Request file (JSON).
    #[arg(long, value_name = "FILE", conflicts_with_all = ["c1", "miner", "sector"])]
    pub(crate) request: Option<PathBuf>,
    /// PoRep C1 output (JSON), with --miner and --sector.
    #[arg(long, value_name = "FILE", requires = "miner", requires = "sector")]
    pub(crate) c1: Option<PathBuf>,
    /// Miner of the C1 output (1000 for f01000).
    #[arg(long, value_name = "N", requires = "c1")]
    pub(crate) miner: Option<u64>,
    /// Sector of the C1 output.
    #[arg(long, value_name = "N", requires = "c1")]
    pub(crate) sector: Option<u64>,
}

/// Pictures of where the time went.
#[derive(Debug, ClapArgs)]
pub(crate) struct DrawArgs {
    /// Where a trace goes that chrome://tracing and Perfetto open; the file must not exist
    /// yet.
    #[arg(long, value_name = "FILE")]
    pub(crate) trace: Option<PathBuf>,
    /// Where a waterfall (SVG) goes; the file must not exist yet.
    #[arg(long, value_name = "FILE")]
    pub(crate) timeline: Option<PathBuf>,
}

#[derive(Debug, ClapArgs)]
pub(crate) struct DemoArgs {
    #[arg(long, default_value = "wpost")]
    /// Proof kind: porep, wpost or winning.
    pub(crate) kind: ProofKind,
    /// Sector size.
    #[arg(long, value_name = "SIZE", default_value = "2KiB")]
    pub(crate) sector_size: SectorSize,
    /// Directory that keeps the test keys [default: cuzk in the user's cache].
    #[arg(long, value_name = "DIR")]
    pub(crate) dir: Option<PathBuf>,
    #[command(flatten)]
    pub(crate) draw: DrawArgs,
}

#[derive(Debug, ClapArgs)]
pub(crate) struct ProveArgs {
    #[command(flatten)]
    pub(crate) request: RequestArgs,
    #[command(flatten)]
    pub(crate) keys: KeyArgs,
    /// Where the proof goes; it must not exist.
    #[arg(long, value_name = "FILE")]
    pub(crate) out: PathBuf,
    #[command(flatten)]
    pub(crate) draw: DrawArgs,
}

#[derive(Debug, ClapArgs)]
pub(crate) struct VerifyArgs {
    #[command(flatten)]
    pub(crate) request: RequestArgs,
    #[command(flatten)]
    pub(crate) keys: KeyArgs,
    /// The proof.
    #[arg(long, value_name = "FILE")]
    pub(crate) proof: PathBuf,
}

#[derive(Debug, ClapArgs)]
pub(crate) struct FixtureArgs {
    #[command(flatten)]
    pub(crate) circuit: CircuitArgs,
    /// Everything in the fixture follows from it.
    #[arg(long, value_name = "N", default_value_t = 1)]
    pub(crate) seed: u64,
    /// The miner's actor id (1000 for f01000).
    #[arg(long, value_name = "N", default_value_t = 1000)]
    pub(crate) miner: u64,
    /// Number of the sector, or of the first one of a WindowPoSt deadline.
    #[arg(long, value_name = "N", default_value_t = 1)]
    pub(crate) first_sector: u64,
    /// wpost: sectors of the partition [default: a full one].
    #[arg(long, value_name = "N")]
    pub(crate) sectors: Option<usize>,
    /// wpost: which partition of the deadline, from 0; those before it are full
    /// [default: 0].
    #[arg(long, value_name = "N")]
    pub(crate) partition: Option<u32>,
    /// The chain's number of the registered proof, which has the API version in it.
    /// porep: 0-4 V1, 5-9 V1.1. wpost: 5-9 V1 (API V1.0), 10-14 V1.1 (API V1.2).
    /// snap, winning: 0-4 V1. Five of each, by sector size
    /// [default: the newest].
    #[arg(long, value_name = "N")]
    pub(crate) registered_proof: Option<u64>,
    /// Where the request goes [default: standard output]; it must not exist.
    #[arg(long, value_name = "FILE")]
    pub(crate) out: Option<PathBuf>,
}

#[derive(Debug, ClapArgs)]
pub(crate) struct DoctorArgs {
    /// Directory of the key files [default: as for prove].
    #[arg(long, value_name = "DIR")]
    pub(crate) params: Option<PathBuf>,
    /// Compares the digest of every proving key with the published one: reads all of
    /// it, minutes for those of large sectors.
    #[arg(long)]
    pub(crate) digests: bool,
}

#[derive(Debug, Subcommand)]
pub(crate) enum ParamsCommand {
    /// Generates an insecure test key from a seed.
    Generate(GenerateArgs),
    /// Prints the sections of a key file.
    Inspect {
        /// The key file.
        file: PathBuf,
    },
    /// Checks every point of a key file.
    Check {
        /// The key file.
        file: PathBuf,
        /// Also checks that points are in the prime-order subgroup; slow.
        #[arg(long)]
        subgroup: bool,
    },
}

#[derive(Debug, ClapArgs)]
pub(crate) struct GenerateArgs {
    #[command(flatten)]
    pub(crate) circuit: CircuitArgs,
    /// Directory of the new files; not one of real keys.
    #[arg(long, value_name = "DIR")]
    pub(crate) out: PathBuf,
    /// The secrets of the key follow from it.
    #[arg(long, value_name = "N", default_value_t = 0)]
    pub(crate) seed: u64,
}

#[derive(Debug, ClapArgs)]
pub(crate) struct ServeArgs {
    #[command(flatten)]
    pub(crate) keys: KeyArgs,
    /// Address for requests over TCP; "" for none [default: serve.listen].
    #[arg(long, value_name = "ADDRESS")]
    pub(crate) listen: Option<String>,
    /// Unix socket for requests; "" for none [default: serve.socket].
    #[arg(long, value_name = "FILE")]
    pub(crate) socket: Option<String>,
    /// Address of the metrics page; "" for none [default: serve.metrics_listen].
    #[arg(long, value_name = "ADDRESS")]
    pub(crate) metrics_listen: Option<String>,
    #[command(flatten)]
    pub(crate) draw: DrawArgs,
}

/// Which server is asked.
#[derive(Debug, ClapArgs)]
pub(crate) struct ServerArgs {
    /// Address of the server.
    #[arg(long, value_name = "ADDRESS", default_value = "127.0.0.1:9820")]
    pub(crate) address: String,
    /// Unix socket of the server, instead of an address.
    #[arg(long, value_name = "FILE", conflicts_with = "address")]
    pub(crate) socket: Option<PathBuf>,
}

#[derive(Debug, ClapArgs)]
pub(crate) struct SubmitArgs {
    #[command(flatten)]
    pub(crate) request: RequestArgs,
    #[command(flatten)]
    pub(crate) server: ServerArgs,
}

/// Which job is meant.
#[derive(Debug, ClapArgs)]
pub(crate) struct JobArgs {
    /// The job's id, as submit printed it.
    pub(crate) job_id: String,
    #[command(flatten)]
    pub(crate) server: ServerArgs,
}

#[derive(Debug, ClapArgs)]
pub(crate) struct AwaitArgs {
    #[command(flatten)]
    pub(crate) job: JobArgs,
    /// Waits so long at most; the job goes on.
    #[arg(long, value_name = "MS")]
    pub(crate) timeout_ms: Option<u64>,
    /// Where the proof goes; it must not exist.
    #[arg(long, value_name = "FILE")]
    pub(crate) out: Option<PathBuf>,
}

/// Which circuit's key is meant.
#[derive(Debug, ClapArgs)]
pub(crate) struct CircuitIdArgs {
    /// Kind and size: porep-32g, wpost-64g, winning-2k.
    pub(crate) circuit_id: String,
    #[command(flatten)]
    pub(crate) server: ServerArgs,
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_tells_of_a_wrong_processor_runs_on_it() {
        let computes = |arguments: &[&str]| {
            let program = ["cuzk"].iter().chain(arguments);
            let args = Args::try_parse_from(program).expect("a command line");
            args.command.computes()
        };
        assert!(!computes(&["doctor"]));
        assert!(!computes(&["config"]));
        assert!(computes(&["demo"]));
        assert!(computes(&["params", "inspect", "key.params"]));
    }
}
