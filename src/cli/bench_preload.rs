//! What the preload library adds to a program that does nothing.

use anyhow::Result;

use crate::bench_figure::Effort;
use crate::bench_host::Host;
use crate::bench_report::Fact;
use crate::bench_session::Session;

const RUNS: usize = 200;
const MOST_MS: f64 = 1.0;

/// Measures it.
pub fn measure(host: &Host, effort: &Effort) -> Result<Vec<Fact>> {
    let session = Session::new(host, &["true"])?;
    let effort = Effort { rounds: RUNS, ..*effort };
    let times = session.rounds(&effort, |face| session.run_in(face, "true", &[]))?;
    Ok(vec![times.extra_ms("preloading true", MOST_MS)])
}
