/*
 * Writes of MPI-IO with holes: `bench_collective FILE SECONDS CALLS how`. Each of the ranks writes
 * 4 KiB a call, and between theirs is as much that nobody writes.
 *
 * `together`: ROMIO's two phases, in which one rank reads what lies between, fills in what the
 * others sent, and writes it. `apart`: each call of a rank has two pieces, and is read, filled in
 * and written by itself under a lock (data sieving).
 *
 * SECONDS gets the time from the opening to the end of closing. Fails if a call does, or what is
 * read back is wrong.
 */
#include <mpi.h>

#include "bench_pieces.h"

/* What a rank has of each period of the file: `count` parts, with holes of their size between. */
static MPI_Datatype part_of_period(int count, int ranks) {
    MPI_Datatype parts, period;
    int length = PIECE / count;
    MPI_Type_vector(count, length, 2 * length, MPI_CHAR, &parts);
    MPI_Type_create_resized(parts, 0, (MPI_Aint)2 * PIECE * ranks, &period);
    MPI_Type_commit(&period);
    MPI_Type_free(&parts);
    return period;
}

int main(int argc, char **argv) {
    int rank, ranks, any, wrong = 0;
    if (argc != 5) return 2;
    int calls = atoi(argv[3]), apart = !strcmp(argv[4], "apart");
    MPI_File file;
    MPI_Info info;
    MPI_Init(&argc, &argv);
    MPI_Comm_rank(MPI_COMM_WORLD, &rank);
    MPI_Comm_size(MPI_COMM_WORLD, &ranks);
    MPI_Info_create(&info);
    MPI_Info_set(info, "romio_cb_write", apart ? "disable" : "enable");
    MPI_Info_set(info, "romio_ds_write", "enable");
    MPI_Datatype period = part_of_period(apart ? 2 : 1, ranks);
    MPI_Barrier(MPI_COMM_WORLD);
    double begin = MPI_Wtime();
    wrong |= MPI_File_open(MPI_COMM_WORLD, argv[1], MPI_MODE_CREATE | MPI_MODE_RDWR, info, &file);
    MPI_Offset own = (MPI_Offset)2 * PIECE * rank;
    wrong |= MPI_File_set_view(file, own, MPI_CHAR, period, "native", info);
    for (int at = 0; at < calls; at++) {
        fill(at, rank);
        wrong |= MPI_File_write_at_all(
            file, (MPI_Offset)at * PIECE, piece, PIECE, MPI_CHAR, MPI_STATUS_IGNORE);
    }
    for (int at = 0; at < calls; at += 97) {
        wrong |= MPI_File_read_at_all(
            file, (MPI_Offset)at * PIECE, piece, PIECE, MPI_CHAR, MPI_STATUS_IGNORE);
        wrong |= is_wrong(at, rank);
    }
    wrong |= MPI_File_close(&file);
    double took = MPI_Wtime() - begin;
    MPI_Type_free(&period);
    MPI_Info_free(&info);
    if (rank == 0) wrong |= tell(argv[2], took);
    MPI_Allreduce(&wrong, &any, 1, MPI_INT, MPI_LOR, MPI_COMM_WORLD);
    MPI_Finalize();
    return any != 0;
}
