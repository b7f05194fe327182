//! Collective writes of MPI-IO as HDF5 makes them with small transfers: two ranks, 4 KiB of each a
//! call, and holes between them, so that ROMIO reads, fills in and writes back what lies between,
//! under a lock. Needs MPICH, not HDF5, whose MPI part does nothing else for this.

use anyhow::{Context, Result};

use crate::bench_figure::Effort;
use crate::bench_host::{Face, Host};
use crate::bench_report::Fact;
use crate::bench_session::Session;
use crate::bypass;

const LEAST: f64 = 1.0;

/// `program FILE CALLS`: fails if a call does, or what is read back is wrong.
const PROGRAM: &str = "\
#include <mpi.h>
#include <stdlib.h>
#include <string.h>
#define PIECE 4096
int main(int argc, char **argv) {
    MPI_File file;
    MPI_Info info;
    MPI_Datatype one, strided;
    int rank, ranks, wrong = argc < 3, any, calls = argc < 3 ? 0 : atoi(argv[2]);
    static char piece[PIECE];
    MPI_Init(&argc, &argv);
    MPI_Comm_rank(MPI_COMM_WORLD, &rank);
    MPI_Comm_size(MPI_COMM_WORLD, &ranks);
    MPI_Info_create(&info);
    MPI_Info_set(info, \"romio_cb_write\", \"enable\");
    MPI_Info_set(info, \"romio_ds_write\", \"enable\");
    wrong |= MPI_File_open(MPI_COMM_WORLD, argv[1], MPI_MODE_CREATE | MPI_MODE_RDWR, info, &file);
    MPI_Type_contiguous(PIECE, MPI_CHAR, &one);
    MPI_Type_create_resized(one, 0, (MPI_Aint)PIECE * (ranks + 1), &strided);
    MPI_Type_commit(&strided);
    wrong |= MPI_File_set_view(file, (MPI_Offset)PIECE * rank, MPI_CHAR, strided, \"native\", info);
    for (int at = 0; at < calls; at++) {
        memset(piece, 'a' + (at + rank) % 26, PIECE);
        wrong |= MPI_File_write_at_all(
            file, (MPI_Offset)at * PIECE, piece, PIECE, MPI_CHAR, MPI_STATUS_IGNORE);
    }
    for (int at = 0; at < calls; at += 97) {
        wrong |= MPI_File_read_at_all(
            file, (MPI_Offset)at * PIECE, piece, PIECE, MPI_CHAR, MPI_STATUS_IGNORE);
        for (int byte = 0; byte < PIECE; byte++) wrong |= piece[byte] != 'a' + (at + rank) % 26;
    }
    wrong |= MPI_File_close(&file);
    MPI_Type_free(&strided);
    MPI_Type_free(&one);
    MPI_Info_free(&info);
    MPI_Allreduce(&wrong, &any, 1, MPI_INT, MPI_LOR, MPI_COMM_WORLD);
    MPI_Finalize();
    return any;
}
";

/// Measures it.
pub fn measure(host: &Host, effort: &Effort) -> Result<Vec<Fact>> {
    let needs = "needs MPICH (Debian: mpich, libmpich-dev)";
    let programs = ["mpicc.mpich", "mpiexec.mpich", "rm"];
    let session = Session::new(host, &programs).context(needs)?;
    let (source, made) = (host.aside("collective.c"), host.aside("collective"));
    std::fs::write(&source, PROGRAM).with_context(|| source.display().to_string())?;
    let (source, made) = (source.display().to_string(), made.display().to_string());
    session.run_in(Face::Tmpfs, "mpicc.mpich", &["-O1", "-o", &made, &source])?;
    let calls = effort.names / 2;
    let path = |face: Face| session.path(face, "collective.out").display().to_string();
    let times = session.rounds(effort, |face| {
        let arguments = ["-n", "2", &made, &path(face), &calls.to_string()];
        let mut command = session.command(face, "mpiexec.mpich", &arguments)?;
        command.envs(bypass::variable());
        let took = session.run(command)?;
        if face.is_terral() {
            session.check("collective.out")?;
        }
        session.run_in(face, "rm", &[&path(face)])?;
        Ok(took)
    })?;
    let name = format!("MPI-IO collective writes of 4 KiB with holes, 2 ranks, {calls} calls");
    Ok(vec![times.quicker(&name, LEAST)])
}
