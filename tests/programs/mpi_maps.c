/* Ranks that write and read one file through maps. argv[1]: the file. */
#include <fcntl.h>
#include <mpi.h>
#include <sys/mman.h>

#include "check.h"

#define EACH (1 << 20)

int main(int count, char **arguments) {
    int rank, ranks;
    CHECK(MPI_Init(&count, &arguments) == MPI_SUCCESS && count == 2);
    MPI_Comm_rank(MPI_COMM_WORLD, &rank);
    MPI_Comm_size(MPI_COMM_WORLD, &ranks);
    int fd = open(arguments[1], O_RDWR | O_CREAT, 0644);
    CHECK(fd >= 0 && ftruncate(fd, (off_t)ranks * EACH) == 0);
    MPI_Barrier(MPI_COMM_WORLD);
    size_t all = (size_t)ranks * EACH;
    unsigned char *map = mmap(NULL, all, PROT_READ | PROT_WRITE, MAP_SHARED, fd, 0);
    CHECK(map != MAP_FAILED);
    memset(map + (size_t)rank * EACH, rank + 1, EACH);
    MPI_Barrier(MPI_COMM_WORLD);
    for (int other = 0; other < ranks; other++) CHECK(map[other * EACH + 77] == other + 1);
    CHECK(msync(map, all, MS_SYNC) == 0 && munmap(map, all) == 0);
    unsigned char *seen = mmap(NULL, all, PROT_READ, MAP_PRIVATE, fd, 0);
    CHECK(seen != MAP_FAILED && seen[0] == 1 && seen[all - 1] == ranks);
    CHECK(munmap(seen, all) == 0 && close(fd) == 0);
    if (rank == 0) printf("%d ranks\n", ranks);
    MPI_Finalize();
    return 0;
}
