/*
 * Collective writes of HDF5, 4 KiB of each rank a call: `bench_hdf5 FILE SECONDS CALLS how`.
 *
 * `strided`: the ranks' pieces in turn. `segmented`: each rank's in a part of its own.
 *
 * SECONDS gets the time from the opening to the end of closing. Fails if a call does, or what is
 * read back is wrong.
 */
#include <hdf5.h>
#include <mpi.h>

#include "bench_pieces.h"

int main(int argc, char **argv) {
    int rank, ranks, any, wrong = 0;
    if (argc != 5) return 2;
    int calls = atoi(argv[3]), segmented = !strcmp(argv[4], "segmented");
    MPI_Init(&argc, &argv);
    MPI_Comm_rank(MPI_COMM_WORLD, &rank);
    MPI_Comm_size(MPI_COMM_WORLD, &ranks);
    hid_t access = H5Pcreate(H5P_FILE_ACCESS), how = H5Pcreate(H5P_DATASET_XFER);
    H5Pset_fapl_mpio(access, MPI_COMM_WORLD, MPI_INFO_NULL);
    H5Pset_dxpl_mpio(how, H5FD_MPIO_COLLECTIVE);
    hsize_t all = (hsize_t)PIECE * ranks * calls, own = PIECE;
    hid_t space = H5Screate_simple(1, &all, NULL), memory = H5Screate_simple(1, &own, NULL);
    MPI_Barrier(MPI_COMM_WORLD);
    double begin = MPI_Wtime();
    hid_t file = H5Fcreate(argv[1], H5F_ACC_TRUNC, H5P_DEFAULT, access);
    hid_t set = H5Dcreate2(
        file, "pieces", H5T_NATIVE_CHAR, space, H5P_DEFAULT, H5P_DEFAULT, H5P_DEFAULT);
    hsize_t between = segmented ? 1 : ranks, first = (hsize_t)rank * (segmented ? calls : 1);
    for (int at = 0; at < calls; at++) {
        hsize_t start = PIECE * (first + between * at);
        fill(at, rank);
        wrong |= H5Sselect_hyperslab(space, H5S_SELECT_SET, &start, NULL, &own, NULL) < 0;
        wrong |= H5Dwrite(set, H5T_NATIVE_CHAR, memory, space, how, piece) < 0;
    }
    for (int at = 0; at < calls; at += 97) {
        hsize_t start = PIECE * (first + between * at);
        wrong |= H5Sselect_hyperslab(space, H5S_SELECT_SET, &start, NULL, &own, NULL) < 0;
        wrong |= H5Dread(set, H5T_NATIVE_CHAR, memory, space, how, piece) < 0;
        wrong |= is_wrong(at, rank);
    }
    wrong |= H5Dclose(set) < 0;
    wrong |= H5Fclose(file) < 0;
    double took = MPI_Wtime() - begin;
    wrong |= H5Sclose(memory) < 0 || H5Sclose(space) < 0;
    wrong |= H5Pclose(how) < 0 || H5Pclose(access) < 0;
    if (rank == 0) wrong |= tell(argv[2], took);
    MPI_Allreduce(&wrong, &any, 1, MPI_INT, MPI_LOR, MPI_COMM_WORLD);
    MPI_Finalize();
    return any != 0;
}
