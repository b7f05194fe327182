/* MPI-IO of every way to ask: blocking, nonblocking, split and collective, individual, shared and
   explicit, and views with holes. Each rank prints nothing but what is wrong; rank 0 prints what
   the file holds in the end. argv[1]: the file; with argv[2], without calls that are nonblocking
   and collective, which Open MPI's ROMIO has not. */
#include <mpi.h>

#include "check.h"

#define INTS 5000
#define OK(call) CHECK((call) == MPI_SUCCESS)

static int rank, ranks, plain;
static int out[INTS], in[INTS];

static void fill(int round) {
    for (int i = 0; i < INTS; i++) out[i] = round * 1000000 + rank * 100000 + i;
    memset(in, 0xff, sizeof in);
}

/* What others may have written for this rank is seen. */
static void settle(MPI_File file) {
    OK(MPI_File_sync(file));
    OK(MPI_Barrier(MPI_COMM_WORLD));
    OK(MPI_File_sync(file));
}

#define same(bytes) CHECK(memcmp(in, out, (size_t)(bytes)) == 0)

static void counted(MPI_Status *status, int ints) {
    int count = -1;
    OK(MPI_Get_count(status, MPI_INT, &count));
    CHECK(count == ints);
}

static void explicit_offsets(MPI_File file) {
    MPI_Status status;
    MPI_Request request;
    MPI_Offset at = (MPI_Offset)rank * (MPI_Offset)sizeof out;
    fill(1);
    OK(MPI_File_iwrite_at(file, at, out, INTS, MPI_INT, &request));
    OK(MPI_Wait(&request, &status));
    counted(&status, INTS);
    OK(MPI_File_iread_at(file, at, in, INTS, MPI_INT, &request));
    int done = 0;
    while (!done) OK(MPI_Test(&request, &done, &status));
    counted(&status, INTS);
    same(sizeof out);
    fill(2);
    OK(MPI_File_write_at_all_begin(file, at, out, INTS, MPI_INT));
    OK(MPI_File_write_at_all_end(file, out, &status));
    counted(&status, INTS);
    settle(file);
    OK(MPI_File_read_at_all_begin(file, at, in, INTS, MPI_INT));
    OK(MPI_File_read_at_all_end(file, in, &status));
    counted(&status, INTS);
    same(sizeof out);
    if (plain) return;
    fill(3);
    OK(MPI_File_iwrite_at_all(file, at, out, INTS, MPI_INT, &request));
    OK(MPI_Wait(&request, &status));
    settle(file);
    OK(MPI_File_iread_at_all(file, at, in, INTS, MPI_INT, &request));
    OK(MPI_Wait(&request, &status));
    same(sizeof out);
    OK(MPI_File_sync(file));
}

static void many_at_once(MPI_File file) {
    enum { PIECES = 50, EACH = INTS / PIECES };
    MPI_Request requests[PIECES];
    MPI_Status statuses[PIECES];
    fill(4);
    for (int i = 0; i < PIECES; i++) {
        MPI_Offset at = ((MPI_Offset)i * ranks + rank) * EACH * (MPI_Offset)sizeof(int);
        OK(MPI_File_iwrite_at(file, at, out + i * EACH, EACH, MPI_INT, &requests[i]));
    }
    OK(MPI_Waitall(PIECES, requests, statuses));
    for (int i = 0; i < PIECES; i++) {
        MPI_Offset at = ((MPI_Offset)i * ranks + rank) * EACH * (MPI_Offset)sizeof(int);
        OK(MPI_File_iread_at(file, at, in + i * EACH, EACH, MPI_INT, &requests[i]));
    }
    OK(MPI_Waitall(PIECES, requests, statuses));
    for (int i = 0; i < PIECES; i++) counted(&statuses[i], EACH);
    same(sizeof out);
}

/* Each rank sees every `ranks`-th block of 10 ints. */
static void views(MPI_File file) {
    MPI_Datatype blocks;
    MPI_Status status;
    MPI_Request request;
    MPI_Offset start = 1 << 20;
    OK(MPI_Type_vector(INTS / 10, 10, 10 * ranks, MPI_INT, &blocks));
    OK(MPI_Type_commit(&blocks));
    MPI_Offset mine = start + (MPI_Offset)rank * 10 * (MPI_Offset)sizeof(int);
    OK(MPI_File_set_view(file, mine, MPI_INT, blocks, "native", MPI_INFO_NULL));
    fill(5);
    for (int turn = 0; turn < ranks; turn++) {
        if (turn == rank) {
            OK(MPI_File_iwrite(file, out, INTS, MPI_INT, &request));
            OK(MPI_Wait(&request, &status));
        }
        OK(MPI_Barrier(MPI_COMM_WORLD));
    }
    OK(MPI_File_seek(file, 0, MPI_SEEK_SET));
    OK(MPI_File_iread(file, in, INTS, MPI_INT, &request));
    OK(MPI_Wait(&request, &status));
    same(sizeof out);
    OK(MPI_Barrier(MPI_COMM_WORLD));
    fill(6);
    OK(MPI_File_seek(file, 0, MPI_SEEK_SET));
    OK(MPI_File_write_all_begin(file, out, INTS, MPI_INT));
    OK(MPI_File_write_all_end(file, out, &status));
    settle(file);
    OK(MPI_File_seek(file, 0, MPI_SEEK_SET));
    OK(MPI_File_read_all_begin(file, in, INTS, MPI_INT));
    OK(MPI_File_read_all_end(file, in, &status));
    same(sizeof out);
    fill(7);
    OK(MPI_File_seek(file, 0, MPI_SEEK_SET));
    OK(MPI_File_write_all(file, out, INTS, MPI_INT, &status));
    settle(file);
    OK(MPI_File_seek(file, 0, MPI_SEEK_SET));
    if (plain) {
        OK(MPI_File_read_all(file, in, INTS, MPI_INT, &status));
    } else {
        OK(MPI_File_iread_all(file, in, INTS, MPI_INT, &request));
        OK(MPI_Wait(&request, &status));
    }
    same(sizeof out);
    OK(MPI_File_sync(file));
    OK(MPI_File_set_view(file, 0, MPI_BYTE, MPI_BYTE, "native", MPI_INFO_NULL));
    OK(MPI_Type_free(&blocks));
}

static void shared_pointer(MPI_File file) {
    MPI_Status status;
    MPI_Request request;
    OK(MPI_File_seek_shared(file, 4 << 20, MPI_SEEK_SET));
    /* The order of the ranks is not known, so all write the same. */
    for (int i = 0; i < 40; i++) out[i] = 8000000 + i;
    OK(MPI_File_iwrite_shared(file, out, 40, MPI_INT, &request));
    OK(MPI_Wait(&request, &status));
    OK(MPI_Barrier(MPI_COMM_WORLD));
    OK(MPI_File_write_ordered_begin(file, out, 40, MPI_INT));
    OK(MPI_File_write_ordered_end(file, out, &status));
    OK(MPI_Barrier(MPI_COMM_WORLD));
    MPI_Offset after = 0;
    OK(MPI_File_get_position_shared(file, &after));
    CHECK(after == (4 << 20) + (MPI_Offset)ranks * 2 * 40 * 4);
}

int main(int count, char **arguments) {
    CHECK(MPI_Init(&count, &arguments) == MPI_SUCCESS && count >= 2);
    plain = count > 2;
    MPI_Comm_rank(MPI_COMM_WORLD, &rank);
    MPI_Comm_size(MPI_COMM_WORLD, &ranks);
    MPI_File file;
    int how = MPI_MODE_CREATE | MPI_MODE_RDWR;
    OK(MPI_File_open(MPI_COMM_WORLD, arguments[1], how, MPI_INFO_NULL, &file));
    explicit_offsets(file);
    OK(MPI_Barrier(MPI_COMM_WORLD));
    many_at_once(file);
    OK(MPI_Barrier(MPI_COMM_WORLD));
    views(file);
    shared_pointer(file);
    OK(MPI_File_preallocate(file, 5 << 20));
    /* OMPIO refuses it now and then. */
    (void)MPI_File_set_atomicity(file, 1);
    fill(9);
    OK(MPI_File_write_at(file, (MPI_Offset)rank * 400, out, 100, MPI_INT, MPI_STATUS_IGNORE));
    OK(MPI_File_sync(file));
    MPI_Offset size = 0;
    OK(MPI_File_get_size(file, &size));
    OK(MPI_File_close(&file));
    if (rank == 0) printf("%d ranks, %lld bytes\n", ranks, (long long)size);
    MPI_Finalize();
    return 0;
}
