/* One file that all ranks write, in each way that programs share one: by segments and by strides as
   IOR does, with holes that others fill (data sieving), collectively, in order, by a shared
   pointer, at the end, atomically. What a byte is follows from its place, so each rank checks what
   others have written: what it reads is what the next rank, on another machine, wrote. argv[1]: the
   directory; then the ways. Rank 0 says how much each has written, and how much of it was wrong. */
#include <fcntl.h>
#include <mpi.h>

#include "check.h"

#define OK(call) CHECK((call) == MPI_SUCCESS)
#define LONGEST (1 << 20)
#define NEW (MPI_MODE_CREATE | MPI_MODE_RDWR)

static int rank, ranks;
static unsigned char out[LONGEST], in[LONGEST];
static const char *directory;

static unsigned char at(MPI_Offset place) {
    return (unsigned char)((unsigned long long)place * 2654435761ull >> 13) | 1;
}

static MPI_File opened(const char *name, int how, MPI_Info hints) {
    char path[4096];
    MPI_File file;
    snprintf(path, sizeof path, "%s/%s", directory, name);
    OK(MPI_File_open(MPI_COMM_WORLD, path, how, hints, &file));
    return file;
}

/* All that is there, looked at by each rank. */
static void say(const char *name, long long wrong, MPI_Offset expected) {
    MPI_File file = opened(name, MPI_MODE_RDONLY, MPI_INFO_NULL);
    MPI_Offset size = 0;
    OK(MPI_File_get_size(file, &size));
    wrong += size != expected;
    OK(MPI_File_close(&file));
    long long all = 0;
    MPI_Reduce(&wrong, &all, 1, MPI_LONG_LONG, MPI_SUM, 0, MPI_COMM_WORLD);
    if (rank == 0) printf("%s: %lld bytes, %lld wrong\n", name, (long long)size, all);
    fflush(stdout);
    MPI_Barrier(MPI_COMM_WORLD);
}

/* Bytes of IOR's: by MPI, or by POSIX's calls. */
typedef struct {
    MPI_File file;
    int descriptor;
} Shared;

static Shared begun(const char *name, int posix, int reads) {
    Shared shared = {MPI_FILE_NULL, -1};
    char path[4096];
    snprintf(path, sizeof path, "%s/%s", directory, name);
    if (posix)
        CHECK((shared.descriptor = open(path, reads ? O_RDONLY : O_RDWR | O_CREAT, 0666)) >= 0);
    else
        shared.file = opened(name, reads ? MPI_MODE_RDONLY : NEW, MPI_INFO_NULL);
    return shared;
}

static void ended(Shared shared) {
    if (shared.descriptor >= 0)
        CHECK(close(shared.descriptor) == 0);
    else
        OK(MPI_File_close(&shared.file));
    MPI_Barrier(MPI_COMM_WORLD);
}

static void transfer(Shared shared, int reads, MPI_Offset from, int length) {
    if (shared.descriptor >= 0 && reads)
        CHECK(pread(shared.descriptor, in, (size_t)length, from) == length);
    else if (shared.descriptor >= 0)
        CHECK(pwrite(shared.descriptor, out, (size_t)length, from) == length);
    else if (reads)
        OK(MPI_File_read_at(shared.file, from, in, length, MPI_BYTE, MPI_STATUS_IGNORE));
    else
        OK(MPI_File_write_at(shared.file, from, out, length, MPI_BYTE, MPI_STATUS_IGNORE));
}

/* In each segment a block of each rank, each written by transfers of `length`; read back as the
   next rank wrote (IOR's `-C`). */
static void blocks(const char *name, int posix, int segments, int transfers, int length) {
    MPI_Offset block = (MPI_Offset)transfers * length;
    long long wrong = 0;
    CHECK(length <= LONGEST);
    for (int reads = 0; reads < 2; reads++) {
        Shared shared = begun(name, posix, reads);
        int whose = (rank + reads) % ranks;
        for (int i = 0; i < segments * transfers; i++) {
            MPI_Offset segment = i / transfers, number = i % transfers;
            MPI_Offset from = (segment * ranks + whose) * block + number * length;
            for (int j = 0; j < length; j++) (reads ? in : out)[j] = reads ? 0 : at(from + j);
            transfer(shared, reads, from, length);
            for (int j = 0; reads && j < length; j++) wrong += in[j] != at(from + j);
        }
        /* What is closed and opened again all see. */
        ended(shared);
    }
    say(name, wrong, (MPI_Offset)segments * ranks * block);
}

/* The bytes of a rank are every `ranks`-th piece: its neighbours' lie between them. */
static void see(MPI_File file, int whose, int pieces, int length) {
    MPI_Datatype type;
    OK(MPI_Type_vector(pieces, length, length * ranks, MPI_BYTE, &type));
    OK(MPI_Type_commit(&type));
    MPI_Offset from = (MPI_Offset)whose * length;
    OK(MPI_File_set_view(file, from, MPI_BYTE, type, "native", MPI_INFO_NULL));
    OK(MPI_Type_free(&type));
}

static MPI_Offset place(int whose, int i, int length) {
    return ((MPI_Offset)(i / length) * ranks + whose) * length + i % length;
}

static void holes(const char *name, MPI_Info hints, int collective, int pieces, int length) {
    MPI_File file = opened(name, NEW, hints);
    int bytes = pieces * length;
    CHECK(bytes <= LONGEST);
    for (int i = 0; i < bytes; i++) out[i] = at(place(rank, i, length));
    see(file, rank, pieces, length);
    MPI_Barrier(MPI_COMM_WORLD);
    if (collective)
        OK(MPI_File_write_all(file, out, bytes, MPI_BYTE, MPI_STATUS_IGNORE));
    else
        OK(MPI_File_write(file, out, bytes, MPI_BYTE, MPI_STATUS_IGNORE));
    OK(MPI_File_close(&file));
    MPI_Barrier(MPI_COMM_WORLD);
    file = opened(name, MPI_MODE_RDONLY, hints);
    int whose = (rank + 1) % ranks;
    long long wrong = 0;
    memset(in, 0, sizeof in);
    see(file, whose, pieces, length);
    if (collective)
        OK(MPI_File_read_all(file, in, bytes, MPI_BYTE, MPI_STATUS_IGNORE));
    else
        OK(MPI_File_read(file, in, bytes, MPI_BYTE, MPI_STATUS_IGNORE));
    for (int i = 0; i < bytes; i++) wrong += in[i] != at(place(whose, i, length));
    OK(MPI_File_close(&file));
    say(name, wrong, (MPI_Offset)bytes * ranks);
}

#define RECORD 1000

static void record(unsigned char *bytes, int whose, int number) {
    MPI_Offset from = (MPI_Offset)(whose * 1000 + number) * RECORD;
    for (int i = 0; i < RECORD; i++) bytes[i] = at(from + i);
}

/* Ranks write one after the other; then those who open it anew add to its end. */
static void ordered(const char *name, int rounds) {
    for (int appends = 0; appends < 2; appends++) {
        int how = MPI_MODE_CREATE | MPI_MODE_WRONLY | (appends ? MPI_MODE_APPEND : 0);
        MPI_File file = opened(name, how, MPI_INFO_NULL);
        for (int round = 0; round < rounds; round++) {
            record(out, rank, appends * rounds + round);
            OK(MPI_File_write_ordered(file, out, RECORD, MPI_BYTE, MPI_STATUS_IGNORE));
        }
        OK(MPI_File_close(&file));
        MPI_Barrier(MPI_COMM_WORLD);
    }
    MPI_File file = opened(name, MPI_MODE_RDONLY, MPI_INFO_NULL);
    long long wrong = 0;
    for (int i = 0; i < 2 * rounds * ranks; i++) {
        MPI_Offset from = (MPI_Offset)i * RECORD;
        OK(MPI_File_read_at(file, from, in, RECORD, MPI_BYTE, MPI_STATUS_IGNORE));
        record(out, i % ranks, i / ranks);
        wrong += memcmp(in, out, RECORD) != 0;
    }
    OK(MPI_File_close(&file));
    say(name, wrong, (MPI_Offset)2 * rounds * ranks * RECORD);
}

/* Whoever comes first: each record is there once, whole. */
static void shared(const char *name, int records) {
    MPI_File file = opened(name, NEW, MPI_INFO_NULL);
    for (int number = 0; number < records; number++) {
        record(out, rank, number);
        OK(MPI_File_write_shared(file, out, RECORD, MPI_BYTE, MPI_STATUS_IGNORE));
    }
    OK(MPI_File_close(&file));
    MPI_Barrier(MPI_COMM_WORLD);
    file = opened(name, MPI_MODE_RDONLY, MPI_INFO_NULL);
    long long wrong = 0;
    char *found = calloc((size_t)(ranks * records), 1);
    for (int i = 0; i < ranks * records; i++) {
        MPI_Offset from = (MPI_Offset)i * RECORD;
        OK(MPI_File_read_at(file, from, in, RECORD, MPI_BYTE, MPI_STATUS_IGNORE));
        for (int one = 0; one < ranks * records; one++) {
            record(out, one / records, one % records);
            if (memcmp(in, out, RECORD) == 0) found[one]++;
        }
    }
    for (int one = 0; one < ranks * records; one++) wrong += found[one] != 1;
    free(found);
    OK(MPI_File_close(&file));
    say(name, wrong, (MPI_Offset)ranks * records * RECORD);
}

/* All write the same places at once, in pieces; what stays is one rank's, whole. */
static void atomically(const char *name, MPI_Info hints, int rounds, int pieces, int length) {
    MPI_File file = opened(name, NEW, hints);
    MPI_Datatype type;
    OK(MPI_Type_vector(pieces, length, 2 * length, MPI_BYTE, &type));
    OK(MPI_Type_commit(&type));
    OK(MPI_File_set_view(file, 0, MPI_BYTE, type, "native", MPI_INFO_NULL));
    OK(MPI_Type_free(&type));
    OK(MPI_File_set_atomicity(file, 1));
    long long wrong = 0;
    int bytes = pieces * length;
    for (int round = 0; round < rounds; round++) {
        memset(out, 'a' + round * ranks + rank, (size_t)bytes);
        OK(MPI_File_write_at(file, 0, out, bytes, MPI_BYTE, MPI_STATUS_IGNORE));
        OK(MPI_File_read_at(file, 0, in, bytes, MPI_BYTE, MPI_STATUS_IGNORE));
        for (int i = 1; i < bytes; i++) wrong += in[i] != in[0];
        MPI_Barrier(MPI_COMM_WORLD);
    }
    OK(MPI_File_close(&file));
    say(name, wrong, (MPI_Offset)(2 * pieces - 1) * length);
}

static MPI_Info hints(const char *sieving, const char *collective) {
    MPI_Info info;
    OK(MPI_Info_create(&info));
    OK(MPI_Info_set(info, "romio_ds_write", sieving));
    OK(MPI_Info_set(info, "romio_cb_write", collective));
    OK(MPI_Info_set(info, "romio_cb_read", collective));
    OK(MPI_Info_set(info, "ind_wr_buffer_size", "65536"));
    OK(MPI_Info_set(info, "cb_buffer_size", "262144"));
    return info;
}

static void done(const char *way) {
    MPI_Info sieve = hints("enable", "disable"), phases = hints("disable", "enable");
    if (strcmp(way, "ior") == 0) {
        blocks("segmented", 0, 1, 8, 256 << 10);
        blocks("strided", 0, 24, 1, 47008);
        blocks("strided-small", 0, 200, 1, 4096);
        blocks("segmented-posix", 1, 1, 3, 1 << 20);
        blocks("strided-posix", 1, 40, 2, 13001);
    } else if (strcmp(way, "sieved") == 0) {
        holes(way, sieve, 0, 300, 1000);
    } else if (strcmp(way, "collective") == 0) {
        holes(way, phases, 1, 2000, 500);
    } else if (strcmp(way, "ordered") == 0) {
        ordered(way, 12);
    } else if (strcmp(way, "shared") == 0) {
        shared(way, 20);
    } else {
        CHECK(strcmp(way, "atomic") == 0);
        atomically(way, sieve, 4, 50, 3000);
    }
    MPI_Info_free(&sieve);
    MPI_Info_free(&phases);
}

int main(int count, char **arguments) {
    CHECK(MPI_Init(&count, &arguments) == MPI_SUCCESS && count >= 2);
    directory = arguments[1];
    MPI_Comm_rank(MPI_COMM_WORLD, &rank);
    MPI_Comm_size(MPI_COMM_WORLD, &ranks);
    for (int at = 2; at < count; at++) done(arguments[at]);
    MPI_Finalize();
    return 0;
}
