/* Parallel HDF5: sets of data that all ranks write, collectively and each for itself, by rows that
   lie together and by strides, in chunks; each reads back what the next one wrote. argv[1]: the
   directory. */
#include <hdf5.h>
#include <mpi.h>

#include "check.h"

#define ROWS 48
#define COLUMNS 1000

static int rank, ranks;
static double own[ROWS][COLUMNS], seen[ROWS][COLUMNS];

static double value(int whose, int row, int column) { return whose * 1e6 + row * 1e3 + column; }

/* A rank's part: rows one after the other, or every `ranks`-th one. */
static hid_t part(hid_t data, int whose, int strided) {
    hsize_t start[2] = {(hsize_t)(strided ? whose : whose * ROWS), 0};
    hsize_t stride[2] = {(hsize_t)(strided ? ranks : 1), 1}, count[2] = {ROWS, COLUMNS};
    hid_t space = H5Dget_space(data);
    CHECK(H5Sselect_hyperslab(space, H5S_SELECT_SET, start, stride, count, NULL) >= 0);
    return space;
}

static void moved(hid_t data, int whose, int strided, int collective, int writes) {
    hid_t how = H5Pcreate(H5P_DATASET_XFER), file = part(data, whose, strided);
    hsize_t count[2] = {ROWS, COLUMNS};
    hid_t memory = H5Screate_simple(2, count, NULL);
    CHECK(H5Pset_dxpl_mpio(how, collective ? H5FD_MPIO_COLLECTIVE : H5FD_MPIO_INDEPENDENT) >= 0);
    if (writes)
        CHECK(H5Dwrite(data, H5T_NATIVE_DOUBLE, memory, file, how, own) >= 0);
    else
        CHECK(H5Dread(data, H5T_NATIVE_DOUBLE, memory, file, how, seen) >= 0);
    H5Sclose(memory);
    H5Sclose(file);
    H5Pclose(how);
}

static const struct {
    const char *name;
    int chunked, strided, collective;
} ALL[] = {{"rows", 0, 0, 1}, {"alone", 0, 0, 0}, {"strided", 0, 1, 1}, {"chunks", 1, 1, 1}};
#define SETS (int)(sizeof ALL / sizeof ALL[0])

static hid_t made(hid_t file, int at) {
    hsize_t all[2] = {(hsize_t)(ROWS * ranks), COLUMNS}, chunk[2] = {20, 300};
    hid_t space = H5Screate_simple(2, all, NULL), how = H5Pcreate(H5P_DATASET_CREATE);
    if (ALL[at].chunked) CHECK(H5Pset_chunk(how, 2, chunk) >= 0);
    CHECK(H5Pset_obj_track_times(how, 0) >= 0);
    hid_t data =
        H5Dcreate2(file, ALL[at].name, H5T_IEEE_F64LE, space, H5P_DEFAULT, how, H5P_DEFAULT);
    CHECK(data >= 0);
    H5Pclose(how);
    H5Sclose(space);
    return data;
}

int main(int count, char **arguments) {
    CHECK(MPI_Init(&count, &arguments) == MPI_SUCCESS && count == 2);
    MPI_Comm_rank(MPI_COMM_WORLD, &rank);
    MPI_Comm_size(MPI_COMM_WORLD, &ranks);
    for (int row = 0; row < ROWS; row++)
        for (int column = 0; column < COLUMNS; column++)
            own[row][column] = value(rank, row, column);
    char path[4096];
    snprintf(path, sizeof path, "%s/parallel.h5", arguments[1]);
    hid_t access = H5Pcreate(H5P_FILE_ACCESS);
    CHECK(H5Pset_fapl_mpio(access, MPI_COMM_WORLD, MPI_INFO_NULL) >= 0);
    hid_t file = H5Fcreate(path, H5F_ACC_TRUNC, H5P_DEFAULT, access);
    CHECK(file >= 0);
    for (int at = 0; at < SETS; at++) {
        hid_t data = made(file, at);
        moved(data, rank, ALL[at].strided, ALL[at].collective, 1);
        CHECK(H5Dclose(data) >= 0);
    }
    CHECK(H5Fclose(file) >= 0);
    MPI_Barrier(MPI_COMM_WORLD);
    CHECK((file = H5Fopen(path, H5F_ACC_RDONLY, access)) >= 0);
    int other = (rank + 1) % ranks, wrong = 0, total = 0;
    for (int at = 0; at < SETS; at++) {
        hid_t data = H5Dopen2(file, ALL[at].name, H5P_DEFAULT);
        memset(seen, 0, sizeof seen);
        moved(data, other, ALL[at].strided, ALL[at].collective, 0);
        for (int row = 0; row < ROWS; row++)
            for (int column = 0; column < COLUMNS; column++)
                wrong += seen[row][column] != value(other, row, column);
        H5Dclose(data);
    }
    CHECK(H5Fclose(file) >= 0);
    H5Pclose(access);
    MPI_Reduce(&wrong, &total, 1, MPI_INT, MPI_SUM, 0, MPI_COMM_WORLD);
    if (rank == 0) printf("%d wrong of %d\n", total, SETS * ranks * ROWS * COLUMNS);
    MPI_Finalize();
    return 0;
}
