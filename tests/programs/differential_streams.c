/* stdio. Buffers are of a given size, as the default follows the file system's block size. */
#define _GNU_SOURCE
#include <errno.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "differential.h"

static const char *const modes[] = {"r", "r+", "w", "w+", "a", "a+", "wx", "re", "w+x"};
static char buffers[STREAMS][4096];
static char bytes[20000];
/* What the last call on it was: a change of direction needs a seek in between. */
static enum { NEITHER, READ, WRITTEN } last[STREAMS];
/* What its mode allows: the rest is not defined. */
static int reads[STREAMS], writes[STREAMS];

static void adopt(uint32_t which, FILE *stream, const char *mode) {
    world.stream[which] = stream;
    last[which] = NEITHER;
    reads[which] = mode[0] == 'r' || strchr(mode, '+') != NULL;
    writes[which] = mode[0] != 'r' || strchr(mode, '+') != NULL;
    result(stream == NULL ? -1 : 0);
    if (stream != NULL) {
        struct stat status;
        if (fstat(fileno(stream), &status) == 0 && S_ISDIR(status.st_mode)) {
            fclose(stream);
            world.stream[which] = NULL;
            return;
        }
        static const size_t sizes[] = {16, 1024, 4096};
        int kind = chance(70) ? _IOFBF : chance(50) ? _IOLBF : _IONBF;
        size_t size = ONE_OF(sizes);
        say(" buffer %d %zu", kind, size);
        setvbuf(stream, kind == _IONBF ? NULL : buffers[which], kind, size);
    }
}

static void drop(uint32_t which) {
    if (world.stream[which] != NULL) {
        say(" closed=%d", fclose(world.stream[which]));
        world.stream[which] = NULL;
    }
}

static void open_stream(void) {
    uint32_t which = draw(STREAMS);
    const char *mode = ONE_OF(modes);
    say(" F%u %s", which, mode);
    drop(which);
    const char *path = some_plain_path(0);
    if (!waits(AT_FDCWD, path) && (mode[0] != 'w' || !truncates_empty(AT_FDCWD, path))) {
        adopt(which, fopen(path, mode), mode);
    }
}

static void open_descriptor(void) {
    uint32_t which = draw(STREAMS);
    const char *mode = modes[draw(feature("fdopen_append") ? 6 : 4)];
    int flags = chance(80) ? O_RDWR : chance(50) ? O_RDONLY : O_WRONLY;
    say(" F%u %s %d", which, mode, flags);
    drop(which);
    /* Its own descriptor: POSIX leaves open what two handles on one offset do to each other. */
    const char *path = some_path(0);
    int fd = open(path, waits(AT_FDCWD, path) ? O_WRONLY | O_NONBLOCK : flags);
    FILE *stream = fdopen(fd, mode);
    int code = errno;
    if (stream == NULL && fd >= 0) {
        close(fd);
    }
    errno = code;
    adopt(which, stream, mode);
}

static void open_again(void) {
    uint32_t which = draw(STREAMS);
    if (world.stream[which] == NULL) {
        return;
    }
    const char *mode = ONE_OF(modes);
    say(" F%u %s", which, mode);
    const char *path = some_plain_path(0);
    if (!waits(AT_FDCWD, path) && (mode[0] != 'w' || !truncates_empty(AT_FDCWD, path))) {
        adopt(which, freopen(path, mode, world.stream[which]), mode);
    }
}

static FILE *some_stream(int direction, uint32_t *which) {
    *which = draw(STREAMS);
    FILE *stream = world.stream[*which];
    say(" F%u", *which);
    if (stream == NULL || (direction == READ && !reads[*which]) ||
        (direction == WRITTEN && !writes[*which])) {
        say(" none");
        return NULL;
    }
    if (direction != NEITHER && last[*which] != NEITHER && last[*which] != (unsigned)direction) {
        say(" turned=%d", fseek(stream, 0, SEEK_CUR));
    }
    if (direction != NEITHER) {
        last[*which] = direction == READ ? READ : WRITTEN;
    }
    return stream;
}

static void write_stream(void) {
    uint32_t which;
    FILE *stream = some_stream(WRITTEN, &which);
    if (stream == NULL) {
        return;
    }
    size_t length = chance(80) ? draw(100) : draw(sizeof bytes);
    switch (draw(4)) {
        case 0:
            result(fprintf(stream, "%u and %s\n", draw(1000), "words"));
            break;
        case 1:
            result(fputs("a line\nand a half", stream) < 0 ? -1 : 0);
            break;
        case 2:
            result(fputc('c', stream));
            break;
        default:
            fill(bytes, length);
            say(" %zu", length);
            say(" = %zu", fwrite(bytes, 1, length, stream));
    }
    say(" error=%d", ferror(stream) != 0);
}

static void read_stream(void) {
    uint32_t which;
    FILE *stream = some_stream(READ, &which);
    if (stream == NULL) {
        return;
    }
    size_t length = chance(80) ? 1 + draw(100) : 1 + draw(sizeof bytes - 1);
    switch (draw(4)) {
        case 0:
            if (fgets(bytes, (int)length + 1, stream) == NULL) {
                say(" = none");
            } else {
                say_bytes(bytes, strlen(bytes));
            }
            break;
        case 1:
            say(" = %d", fgetc(stream));
            break;
        case 2: {
            char *text = NULL;
            size_t room = 0;
            ssize_t got = getline(&text, &room, stream);
            say(" = %zd", got);
            if (got > 0) {
                say_bytes(text, (size_t)got);
            }
            free(text);
            break;
        }
        default:
            say_bytes(bytes, fread(bytes, 1, length, stream));
    }
    say(" end=%d error=%d", feof(stream) != 0, ferror(stream) != 0);
}

static void seek_stream(void) {
    uint32_t which;
    FILE *stream = some_stream(NEITHER, &which);
    if (stream == NULL) {
        return;
    }
    last[which] = NEITHER;
    /* From the end on, libc reads ahead where it knows the file's kind. */
    int whence = (int)draw(feature("atime") && !feature("seek_reads") ? 2 : 3);
    long at = (long)some_offset() * (whence > 0 && chance(50) ? -1 : 1);
    say(" %ld %d", at, whence);
    result(fseek(stream, at, whence));
    say(" at=%ld", ftell(stream));
}

static void other_calls(void) {
    uint32_t which;
    uint32_t call = draw(5);
    FILE *stream = some_stream(call == 1 ? READ : NEITHER, &which);
    if (stream == NULL) {
        return;
    }
    struct stat status;
    switch (call) {
        case 0:
            result(fflush(stream));
            break;
        case 1:
            result(ungetc('u', stream));
            say(" back=%d", fgetc(stream));
            break;
        case 2:
            result(ftell(stream));
            break;
        case 3:
            clearerr(stream);
            rewind(stream);
            last[which] = NEITHER;
            break;
        default:
            result(fstat(fileno(stream), &status));
            say_status(&status);
    }
}

static void close_stream(void) {
    uint32_t which = draw(STREAMS);
    say(" F%u", which);
    drop(which);
}

const struct operation stream_operations[] = {
    {"fopen", NULL, 4, open_stream},
    {"fdopen", NULL, 2, open_descriptor},
    {"freopen", "freopen", 2, open_again},
    {"fwrite", NULL, 4, write_stream},
    {"fread", NULL, 4, read_stream},
    {"fseek", NULL, 3, seek_stream},
    {"fother", NULL, 3, other_calls},
    {"fclose", NULL, 2, close_stream},
    {NULL, NULL, 0, NULL},
};
