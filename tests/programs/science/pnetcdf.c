/* PnetCDF: four ranks define, write collectively and by records, and read back. */
#include <mpi.h>
#include <pnetcdf.h>
#include <stdio.h>
#include <stdlib.h>

#define ROWS 64
#define COLUMNS 512

static void check(int status, const char *what)
{
    if (status != NC_NOERR) {
        fprintf(stderr, "%s: %s\n", what, ncmpi_strerror(status));
        MPI_Abort(MPI_COMM_WORLD, 1);
    }
}

int main(int count, char **arguments)
{
    int rank, size, file, dimensions[2], grid, steps;
    static double own[ROWS][COLUMNS], seen[ROWS][COLUMNS];

    MPI_Init(&count, &arguments);
    MPI_Comm_rank(MPI_COMM_WORLD, &rank);
    MPI_Comm_size(MPI_COMM_WORLD, &size);
    check(ncmpi_create(MPI_COMM_WORLD, "grid.nc", NC_CLOBBER | NC_64BIT_DATA, MPI_INFO_NULL, &file),
          "create");
    check(ncmpi_def_dim(file, "time", NC_UNLIMITED, &dimensions[0]), "time");
    check(ncmpi_def_var(file, "steps", NC_INT, 1, dimensions, &steps), "steps");
    check(ncmpi_def_dim(file, "rows", (MPI_Offset)ROWS * size, &dimensions[0]), "rows");
    check(ncmpi_def_dim(file, "columns", COLUMNS, &dimensions[1]), "columns");
    check(ncmpi_def_var(file, "grid", NC_DOUBLE, 2, dimensions, &grid), "grid");
    check(ncmpi_enddef(file), "enddef");
    for (int row = 0; row < ROWS; row++)
        for (int column = 0; column < COLUMNS; column++)
            own[row][column] = rank * 1e6 + row * 1e3 + column;
    MPI_Offset start[2] = {(MPI_Offset)rank * ROWS, 0}, extent[2] = {ROWS, COLUMNS};
    check(ncmpi_put_vara_double_all(file, grid, start, extent, &own[0][0]), "put");
    for (int step = 0; step < 10; step++) {
        MPI_Offset at = (MPI_Offset)step * size + rank, one = 1;
        int value = step * 10 + rank;
        check(ncmpi_put_vara_int_all(file, steps, &at, &one, &value), "record");
    }
    check(ncmpi_close(file), "close");
    check(ncmpi_open(MPI_COMM_WORLD, "grid.nc", NC_NOWRITE, MPI_INFO_NULL, &file), "open");
    int other = (rank + 1) % size, wrong = 0, total = 0;
    start[0] = (MPI_Offset)other * ROWS;
    check(ncmpi_get_vara_double_all(file, grid, start, extent, &seen[0][0]), "get");
    for (int row = 0; row < ROWS; row++)
        for (int column = 0; column < COLUMNS; column++)
            wrong += seen[row][column] != other * 1e6 + row * 1e3 + column;
    check(ncmpi_close(file), "close");
    MPI_Reduce(&wrong, &total, 1, MPI_INT, MPI_SUM, 0, MPI_COMM_WORLD);
    if (rank == 0)
        printf("%d wrong of %d\n", total, size * ROWS * COLUMNS);
    MPI_Finalize();
    return total != 0;
}
