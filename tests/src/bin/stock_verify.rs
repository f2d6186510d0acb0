//! Has the stock software's own verifier judge a proof: `stock_verify REQUEST PROOF`.
//! Prints `accepted` or `rejected`. The verifying key is the one in
//! FIL_PROOFS_PARAMETER_CACHE; the stock software reads it once a process, which is
//! why this is one.

use std::path::Path;

use anyhow::{Context, Result, bail};
use cuzk_tests::request::RequestFile;
use cuzk_tests::stock;

fn main() -> Result<()> {
    let mut arguments = std::env::args().skip(1);
    let (Some(request), Some(proof), None) = (arguments.next(), arguments.next(), arguments.next())
    else {
        bail!("want REQUEST PROOF");
    };
    let file = RequestFile::read(Path::new(&request))?;
    let proof = std::fs::read(&proof).context(proof)?;
    let accepted = stock::accepts(&file, &proof)?;
    println!("{}", if accepted { "accepted" } else { "rejected" });
    Ok(())
}
