/* Checkpoints in Terral: written under a name of their own, made safe, then renamed into place,
 * so that a reader finds the last whole one whatever happens to the writer.
 *
 *   cc -std=c99 example.c $(pkg-config --cflags --libs terral) -o example
 *   ./example            (connects to what $TERRAL_INSTANCE says)
 */
#define _POSIX_C_SOURCE 200809L
#include <errno.h>
#include <fcntl.h>
#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <terral.h>

enum { STEPS = 3, VALUES = 1 << 20 };

#define DIRECTORY "checkpoints"
#define LATEST DIRECTORY "/latest"

struct header {
    char magic[8];
    uint64_t step;
    uint64_t values;
};

static const char MAGIC[8] = {'C', 'H', 'E', 'C', 'K', 'P', 'T', '1'};

static int complain(const char *what) {
    fprintf(stderr, "example: %s: %s (%s)\n", what, terral_error(), strerror(errno));
    return -1;
}

/* Writes one checkpoint and puts it in the place of the last. */
static int save(terral_t *terral, uint64_t step, double *values, size_t count) {
    char path[64];
    struct header header = {.step = step, .values = count};
    struct iovec parts[2] = {{&header, sizeof header}, {values, count * sizeof *values}};
    ssize_t whole = (ssize_t)(parts[0].iov_len + parts[1].iov_len);
    memcpy(header.magic, MAGIC, sizeof MAGIC);
    snprintf(path, sizeof path, DIRECTORY "/step-%" PRIu64, step);

    terral_file_t *file = terral_open(terral, path, O_WRONLY | O_CREAT | O_TRUNC, 0644);
    if (file == NULL) {
        return complain(path);
    }
    ssize_t written = terral_writev(file, parts, 2);
    if (written != whole || terral_sync(file) != 0) {
        complain(path);
        terral_close(file);
        terral_unlink(terral, path);
        return -1;
    }
    if (terral_close(file) != 0 || terral_rename(terral, path, LATEST) != 0) {
        return complain(path);
    }
    return 0;
}

/* Reads the last checkpoint into `values`, at most `room` of them; gives its step, or -1. */
static int64_t restore(terral_t *terral, double *values, size_t room) {
    struct header header;
    terral_file_t *file = terral_open(terral, LATEST, O_RDONLY, 0);
    if (file == NULL) {
        return complain(LATEST);
    }
    int64_t step = -1;
    if (terral_read(file, &header, sizeof header) != (ssize_t)sizeof header ||
        memcmp(header.magic, MAGIC, sizeof MAGIC) != 0 || header.values > room) {
        fprintf(stderr, "example: %s: not a checkpoint that fits\n", LATEST);
    } else {
        size_t length = (size_t)header.values * sizeof *values;
        ssize_t got = terral_pread(file, values, length, (int64_t)sizeof header);
        if (got == (ssize_t)length) {
            step = (int64_t)header.step;
        } else {
            fprintf(stderr, "example: %s: cut short\n", LATEST);
        }
    }
    terral_close(file);
    return step;
}

static int show(void *context, const char *name, uint32_t mode) {
    (void)context;
    (void)mode;
    printf("  %s\n", name);
    return 0;
}

int main(void) {
    terral_t *terral = terral_connect(NULL);
    if (terral == NULL) {
        complain("connect");
        return 1;
    }
    double *values = calloc(VALUES, sizeof *values);
    double *back = calloc(VALUES, sizeof *back);
    int failed = values == NULL || back == NULL;
    if (!failed && terral_mkdir(terral, DIRECTORY, 0755) != 0 && errno != EEXIST) {
        failed = complain(DIRECTORY);
    }
    for (uint64_t step = 1; !failed && step <= STEPS; step++) {
        for (size_t i = 0; i < VALUES; i++) {
            values[i] += (double)(i % 1000) / (double)step;
        }
        failed = save(terral, step, values, VALUES);
    }
    if (!failed) {
        int64_t step = restore(terral, back, VALUES);
        failed = step != STEPS || memcmp(values, back, VALUES * sizeof *values) != 0;
        printf("%s step %" PRId64 ", %d values\n", failed ? "lost" : "restored", step, VALUES);
        printf("%s:\n", DIRECTORY);
        if (terral_list(terral, DIRECTORY, show, NULL) != 0) {
            failed = complain(DIRECTORY);
        }
    }
    free(values);
    free(back);
    terral_disconnect(terral);
    return failed ? 1 : 0;
}
