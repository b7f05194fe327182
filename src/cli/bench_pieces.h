/* What the programs of `bench_mpi` share: pieces of 4 KiB that tell who wrote them when. */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#define PIECE 4096

static char piece[PIECE];

static void fill(int at, int rank) {
    memset(piece, 'a' + (at + rank) % 26, PIECE);
}

static int is_wrong(int at, int rank) {
    for (int byte = 0; byte < PIECE; byte++)
        if (piece[byte] != 'a' + (at + rank) % 26) return 1;
    return 0;
}

/* 0: `path` has the seconds. */
static int tell(const char *path, double took) {
    FILE *seconds = fopen(path, "w");
    return !seconds || fprintf(seconds, "%.9f\n", took) < 0 || fclose(seconds);
}
