/* Heat in a plate, by as many ranks of MPI as there are, with checkpoints in Terral: killed at any
 * moment, it goes on from the last whole one, also with another number of ranks.
 *
 *   mpicc heat.c $(pkg-config --cflags --libs terral) -o heat
 *   mpiexec -n 4 ./heat DIRECTORY STEPS [MICROSECONDS a step shall take]
 *   mpiexec -n 1 ./heat DIRECTORY          (compares the last checkpoint with a computation anew)
 *
 * It connects to what $TERRAL_INSTANCE says. Each rank has some rows; a checkpoint is all rows one
 * after the other, so whoever reads it back only says which rows it wants. With HEAT_COPIES=2 each
 * is on two machines.
 */
#define _POSIX_C_SOURCE 200809L
#include <errno.h>
#include <inttypes.h>
#include <mpi.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <terral.h>
#include <time.h>

enum { WIDTH = 256, HEIGHT = 256, EVERY = 3, KEPT = 2 };

static int rank, ranks;

static void need(int well, const char *what) {
    if (!well) {
        fprintf(stderr, "heat: rank %d: %s: %s\n", rank, what, terral_error());
        MPI_Abort(MPI_COMM_WORLD, 1);
    }
}

/* The rows of a rank: from this one on, up to that of the next. */
static int first_row(int of) {
    return (int)((long)HEIGHT * of / ranks);
}

/* Rows `from` to `to` of the plate, with one more above and below. */
struct plate {
    int from, to;
    double *now, *next;
};

static double *row(double *cells, int at) {
    return cells + (size_t)(at + 1) * WIDTH;
}

static struct plate make(int from, int to) {
    struct plate plate = {from, to, NULL, NULL};
    size_t cells = (size_t)(to - from + 2) * WIDTH;
    plate.now = calloc(cells, sizeof(double));
    plate.next = calloc(cells, sizeof(double));
    need(plate.now != NULL && plate.next != NULL, "memory");
    for (int y = from; y < to; y++) {
        for (int x = 0; x < WIDTH; x++) {
            row(plate.now, y - from)[x] = (double)((x * 7 + y * 13) % 101);
        }
    }
    return plate;
}

static void unmake(struct plate *plate) {
    free(plate->now);
    free(plate->next);
}

/* One step: the mean of the neighbours; the sides are cold. */
static void advance(struct plate *plate) {
    for (int y = 0; y < plate->to - plate->from; y++) {
        const double *above = row(plate->now, y - 1), *at = row(plate->now, y);
        const double *below = row(plate->now, y + 1);
        for (int x = 0; x < WIDTH; x++) {
            double left = x > 0 ? at[x - 1] : 0, right = x + 1 < WIDTH ? at[x + 1] : 0;
            row(plate->next, y)[x] = (above[x] + below[x] + left + right) * 0.25;
        }
    }
    double *now = plate->now;
    plate->now = plate->next;
    plate->next = now;
}

/* Gets the rows of those above and below. */
static void exchange(struct plate *plate) {
    int rows = plate->to - plate->from;
    int above = rank > 0 ? rank - 1 : MPI_PROC_NULL;
    int below = rank + 1 < ranks ? rank + 1 : MPI_PROC_NULL;
    MPI_Sendrecv(row(plate->now, 0), WIDTH, MPI_DOUBLE, above, 0, row(plate->now, rows), WIDTH,
                 MPI_DOUBLE, below, 0, MPI_COMM_WORLD, MPI_STATUS_IGNORE);
    MPI_Sendrecv(row(plate->now, rows - 1), WIDTH, MPI_DOUBLE, below, 1, row(plate->now, -1), WIDTH,
                 MPI_DOUBLE, above, 1, MPI_COMM_WORLD, MPI_STATUS_IGNORE);
}

static int64_t byte_of(int y) {
    return (int64_t)y * WIDTH * (int64_t)sizeof(double);
}

/* Begin, an object for each rank, gather, end. */
static void save(terral_checkpoints_t *all, struct plate *plate, uint64_t step) {
    terral_checkpoint_t *checkpoint = NULL;
    uint64_t attempt = 0;
    if (rank == 0) {
        checkpoint = terral_checkpoint_begin(all, step);
        need(checkpoint != NULL && terral_checkpoint_attempt(checkpoint, &attempt) == 0, "begin");
    }
    MPI_Bcast(&attempt, 1, MPI_UINT64_T, 0, MPI_COMM_WORLD);
    if (rank != 0) {
        checkpoint = terral_checkpoint_join(all, step, attempt);
        need(checkpoint != NULL, "join");
    }
    struct terral_part part, *parts = rank == 0 ? calloc((size_t)ranks, sizeof part) : NULL;
    size_t length = (size_t)(byte_of(plate->to) - byte_of(plate->from));
    int dumped = terral_checkpoint_dump(checkpoint, (uint32_t)rank, byte_of(plate->from),
                                        row(plate->now, 0), length, &part);
    need(dumped == 0, "dump");
    MPI_Gather(&part, sizeof part, MPI_BYTE, parts, sizeof part, MPI_BYTE, 0, MPI_COMM_WORLD);
    if (rank == 0) {
        need(terral_checkpoint_end(checkpoint, parts, (size_t)ranks) == 0, "end");
        free(parts);
    } else {
        terral_checkpoint_leave(checkpoint);
    }
}

/* Gets this rank's rows from the last whole checkpoint; gives its step, 0 if there is none. */
static uint64_t restore(terral_checkpoints_t *all, struct plate *plate) {
    uint64_t step = 0;
    terral_restart_t *last = terral_restart_open(all, -1);
    /* What cannot be read now is no reason to begin anew. */
    need(last != NULL || errno == ENOENT, "the last checkpoint");
    if (last != NULL) {
        ssize_t length = (ssize_t)(byte_of(plate->to) - byte_of(plate->from));
        void *into = row(plate->now, 0);
        ssize_t got = terral_restart_read(last, into, (size_t)length, byte_of(plate->from));
        need(got == length && terral_restart_step(last, &step) == 0, "restart");
        terral_restart_close(last);
    }
    return step;
}

static void compute(terral_checkpoints_t *all, uint64_t steps, long pause_us) {
    struct plate plate = make(first_row(rank), first_row(rank + 1));
    uint64_t step = restore(all, &plate);
    if (rank == 0) {
        printf("from %" PRIu64 "\n", step);
        fflush(stdout);
    }
    struct timespec pause = {pause_us / 1000000, pause_us % 1000000 * 1000};
    while (step < steps) {
        exchange(&plate);
        advance(&plate);
        step++;
        nanosleep(&pause, NULL);
        if (step % EVERY == 0 || step == steps) {
            save(all, &plate, step);
        }
    }
    unmake(&plate);
}

/* Whether the last checkpoint is what comes of so many steps. */
static void compare(terral_checkpoints_t *all) {
    struct plate saved = make(0, HEIGHT), anew = make(0, HEIGHT);
    uint64_t step = restore(all, &saved);
    for (uint64_t at = 0; at < step; at++) {
        advance(&anew);
    }
    int same = memcmp(row(saved.now, 0), row(anew.now, 0), (size_t)byte_of(HEIGHT)) == 0;
    printf("step %" PRIu64 " is %s\n", step, same ? "right" : "wrong");
    unmake(&saved);
    unmake(&anew);
}

int main(int count, char **arguments) {
    MPI_Init(&count, &arguments);
    MPI_Comm_rank(MPI_COMM_WORLD, &rank);
    MPI_Comm_size(MPI_COMM_WORLD, &ranks);
    need(count >= 2 && count <= 4, "usage: heat DIRECTORY [STEPS [MICROSECONDS]]");
    terral_t *terral = terral_connect(NULL);
    need(terral != NULL, "connect");
    terral_checkpoints_t *all = terral_checkpoints_open(terral, arguments[1], KEPT, 0755);
    need(all != NULL, "checkpoints");
    const char *copies = getenv("HEAT_COPIES");
    if (copies != NULL) {
        need(terral_checkpoints_copies(all, (size_t)atol(copies)) == 0, "copies");
    }
    if (count == 2) {
        compare(all);
    } else {
        compute(all, strtoull(arguments[2], NULL, 10), count > 3 ? atol(arguments[3]) : 0);
    }
    terral_checkpoints_close(all);
    terral_disconnect(terral);
    MPI_Finalize();
    return 0;
}
