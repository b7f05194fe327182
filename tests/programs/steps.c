/* What of a call others see in one step, and what piece by piece: writers in processes of their
 * own, and a reader that looks at any moment. One word says which: see the table at the end. */
#include <fcntl.h>
#include <signal.h>
#include <stdint.h>
#include <sys/stat.h>
#include <sys/uio.h>
#include <sys/wait.h>
#include <time.h>

#include "check.h"

enum { KIB = 1 << 10, MIB = 1 << 20, CHUNK = 2 * MIB, BUFFERS = 100 };

static unsigned char bytes[8 * MIB], seen[8 * MIB];

/* Whether to go on: for so many rounds, and, on a busy machine, until the reader has seen something
 * on the way often enough, but not for ever. */
static int goes_on(int round, int rounds, int seen_on_the_way) {
    static time_t begin;
    begin = round == 0 ? time(NULL) : begin;
    int seconds = seen_on_the_way == 0 ? 300 : seen_on_the_way < 10 ? 40 : 0;
    return round < rounds || time(NULL) - begin < seconds;
}

static long size_of(int fd) {
    struct stat about;
    CHECK(fstat(fd, &about) == 0);
    return about.st_size;
}

static void all_are(int fd, long at, size_t length, int letter) {
    CHECK(pread(fd, seen, length, at) == (ssize_t)length);
    for (size_t i = 0; i < length; i++) {
        CHECK(seen[i] == letter);
    }
}

static pid_t writer(void (*writes)(int), int number) {
    pid_t child = fork();
    CHECK(child >= 0);
    if (child == 0) {
        writes(number);
        _exit(0);
    }
    return child;
}

static void ended_well(pid_t child) {
    int status;
    CHECK(waitpid(child, &status, 0) == child && status == 0);
}

/* Appends: records of a head and so many times one letter. */

struct head {
    uint32_t mark, writer, number, length;
};

enum { MARK = 0x5ec04d, WRITERS = 4, RECORDS = 120 };

static const uint32_t lengths[] = {1, 100, 5000, 64 * KIB + 7, 300000, 3 * MIB + 11};

static int letter_of(const struct head *head) {
    return 'a' + (int)((head->writer * 7 + head->number) % 26);
}

/* By one `write`, or one `writev` of many parts. */
static void append_one(int fd, uint32_t number, uint32_t record) {
    struct head head = {MARK, number, record, lengths[(number + record) % 6]};
    memcpy(bytes, &head, sizeof head);
    memset(bytes + sizeof head, letter_of(&head), head.length);
    size_t whole = sizeof head + head.length, part = whole / BUFFERS;
    struct iovec vector[BUFFERS];
    for (size_t i = 0; i < BUFFERS; i++) {
        vector[i] = (struct iovec){bytes + i * part, i + 1 < BUFFERS ? part : whole - i * part};
    }
    ssize_t done = record % 2 ? write(fd, bytes, whole) : writev(fd, vector, BUFFERS);
    CHECK(done == (ssize_t)whole);
}

static void append_some(int number) {
    int fd = open("appended", O_WRONLY | O_APPEND);
    CHECK(fd >= 0);
    for (uint32_t record = 0; record < RECORDS; record++) {
        append_one(fd, (uint32_t)number, record);
    }
}

static void append_for_ever(int number) {
    int fd = open("appended", O_WRONLY | O_APPEND);
    CHECK(fd >= 0);
    for (uint32_t record = 0;; record++) {
        append_one(fd, (uint32_t)number, record);
    }
}

/* Reads whole records from `at` to the end as it is now, and counts them. */
static long read_records(int fd, long at, int *records) {
    long end = size_of(fd);
    while (at < end) {
        struct head head;
        CHECK(pread(fd, &head, sizeof head, at) == sizeof head && head.mark == MARK);
        CHECK(at + (long)sizeof head + (long)head.length <= end);
        all_are(fd, at + (long)sizeof head, head.length, letter_of(&head));
        at += (long)sizeof head + (long)head.length;
        ++*records;
    }
    return at;
}

static void appends(void) {
    int fd = open("appended", O_RDWR | O_CREAT, 0600), records = 0, looks = 0;
    pid_t children[WRITERS];
    for (int i = 0; i < WRITERS; i++) {
        children[i] = writer(append_some, i);
    }
    for (long at = 0; records < WRITERS * RECORDS;) {
        long before = at;
        at = read_records(fd, at, &records);
        looks += at > before;
    }
    CHECK(looks > 1);
    for (int i = 0; i < WRITERS; i++) {
        ended_well(children[i]);
    }
    int again = 0;
    CHECK(read_records(fd, 0, &again) == size_of(fd) && again == WRITERS * RECORDS);
}

static void killed(void) {
    int fd = open("appended", O_RDWR | O_CREAT | O_APPEND, 0600), records = 0, status;
    long at = 0;
    for (int round = 0; round < 30; round++) {
        pid_t children[2] = {writer(append_for_ever, round % 6), writer(append_for_ever, 7)};
        for (int i = 0; i < 60000 && size_of(fd) == at; i++) {
            usleep(1000);
        }
        CHECK(size_of(fd) > at);
        usleep((useconds_t)(round * 517));
        for (int i = 0; i < 2; i++) {
            CHECK(kill(children[i], SIGKILL) == 0 && waitpid(children[i], &status, 0) > 0);
            CHECK(WIFSIGNALED(status));
        }
        append_one(fd, 9, (uint32_t)round);
        at = read_records(fd, at, &records);
        CHECK(at == size_of(fd));
        if (at > 300 * MIB) {
            CHECK(ftruncate(fd, 0) == 0);
            at = 0;
        }
    }
    CHECK(records >= 60);
}

/* Growth inside a chunk. */

enum { PIECE = 300000, PIECES = 6, ROUNDS = 100 };

static char name[64];

static void grow_one(int round) {
    snprintf(name, sizeof name, "grown-%d", round);
    int fd = open(name, O_WRONLY);
    CHECK(fd >= 0);
    for (int i = 0; i < PIECES; i++) {
        memset(bytes, 'a' + i, PIECE);
        CHECK(pwrite(fd, bytes, PIECE, (off_t)i * PIECE) == PIECE);
    }
}

/* One write that ends it, in as many buffers, the file offset where it was. */
static void vector_one(int round) {
    snprintf(name, sizeof name, "grown-%d", round);
    int fd = open(name, O_WRONLY);
    struct iovec vector[PIECES];
    for (int i = 0; i < PIECES; i++) {
        vector[i] = (struct iovec){memset(bytes + i * PIECE, 'a' + i, PIECE), PIECE};
    }
    CHECK(fd >= 0 && writev(fd, vector, PIECES) == (ssize_t)PIECES * PIECE);
}

static void grows(void (*by)(int)) {
    int between = 0;
    for (int round = 0; goes_on(round, ROUNDS, between); round++) {
        snprintf(name, sizeof name, "grown-%d", round);
        int fd = open(name, O_RDONLY | O_CREAT, 0600);
        CHECK(fd >= 0);
        pid_t child = writer(by, round);
        for (long known = 0, size; known < (long)PIECES * PIECE; known = size) {
            size = size_of(fd);
            CHECK(size >= known && size % PIECE == 0);
            between += size > known && size < (long)PIECES * PIECE;
            for (long at = known; at < size; at += PIECE) {
                all_are(fd, at, PIECE, 'a' + (int)(at / PIECE));
            }
        }
        ended_well(child);
        CHECK(close(fd) == 0 && unlink(name) == 0);
    }
    CHECK(between > 0);
}

static void growth(void) {
    grows(grow_one);
}

static void vectors(void) {
    grows(vector_one);
}

/* A write across borders of chunks: to 5.5 MiB, once beyond the end, then over what is there. */

static const long ends[] = {MIB, CHUNK, 2 * CHUNK, 5 * MIB + MIB / 2};

static void cross(int round) {
    int fd = open(name, O_WRONLY);
    (void)round;
    memset(bytes, 1, sizeof bytes);
    CHECK(fd >= 0 && pwrite(fd, bytes, (size_t)(ends[3] - MIB), MIB) == ends[3] - MIB);
    for (int letter = 2; letter < 120; letter++) {
        memset(bytes, letter, sizeof bytes);
        CHECK(pwrite(fd, bytes, (size_t)ends[3], 0) == ends[3]);
    }
}

static int byte_at(int fd, long at) {
    unsigned char byte;
    CHECK(pread(fd, &byte, 1, at) == 1);
    return byte;
}

static void borders(void) {
    int between = 0, apart = 0;
    for (int round = 0; goes_on(round, 10, between + apart); round++) {
        snprintf(name, sizeof name, "crossed-%d", round);
        int fd = open(name, O_RDWR | O_CREAT, 0600), step = 0;
        memset(bytes, 1, MIB);
        CHECK(fd >= 0 && pwrite(fd, bytes, MIB, 0) == MIB);
        pid_t child = writer(cross, round);
        while (step < 3) {
            long size = size_of(fd);
            int now = step;
            while (now < 3 && ends[now] < size) {
                now++;
            }
            CHECK(ends[now] == size);
            between += now > step && now < 3;
            if (step == 0 && now > 0) {
                CHECK(byte_at(fd, size - 1) != 0 && byte_at(fd, MIB) != 0);
            }
            step = now;
        }
        for (int last = 0; last < 119;) {
            last = byte_at(fd, ends[3] - 1);
            int middle = byte_at(fd, CHUNK + 5), first = byte_at(fd, 5);
            CHECK(first >= middle && middle >= last);
            apart += first > last;
        }
        ended_well(child);
        CHECK(close(fd) == 0 && unlink(name) == 0);
    }
    CHECK(between + apart > 0);
}

/* Pages that were never written, in memory that other files had before. */

enum { PAGE = 4096, WRITTEN = 1000, FRESH = 4 * MIB };

static void sprinkle(int round) {
    int fd = open(name, O_WRONLY);
    CHECK(fd >= 0);
    memset(bytes, 'n', WRITTEN);
    for (long i = 0; i < FRESH / PAGE; i++) {
        long page = i * 389 % (FRESH / PAGE);
        CHECK(pwrite(fd, bytes, WRITTEN, page * PAGE + (round * 331 + i * 61) % 3000) == WRITTEN);
    }
}

static void fresh(void) {
    int some = 0;
    for (int round = 0; goes_on(round, 40, some); round++) {
        int old = open("old", O_RDWR | O_CREAT | O_TRUNC, 0600);
        memset(bytes, 'X', sizeof bytes);
        for (int i = 0; i < 12; i++) {
            CHECK(old >= 0 && write(old, bytes, sizeof bytes) == (ssize_t)sizeof bytes);
        }
        CHECK(close(old) == 0 && unlink("old") == 0);
        snprintf(name, sizeof name, "fresh-%d", round);
        int fd = open(name, O_RDWR | O_CREAT, 0600);
        CHECK(fd >= 0 && ftruncate(fd, FRESH) == 0);
        pid_t child = writer(sprinkle, round);
        for (long found = 0; found < (long)WRITTEN * (FRESH / PAGE);) {
            found = 0;
            CHECK(pread(fd, seen, FRESH, 0) == FRESH);
            for (long i = 0; i < FRESH; i++) {
                CHECK(seen[i] == 0 || seen[i] == 'n');
                found += seen[i] == 'n';
            }
            some += found > 0 && found < (long)WRITTEN * (FRESH / PAGE);
        }
        ended_well(child);
        CHECK(close(fd) == 0 && unlink(name) == 0);
    }
    CHECK(some > 0);
}

int main(int count, char **arguments) {
    static const struct {
        const char *word;
        void (*does)(void);
    } all[] = {{"appends", appends}, {"killed", killed},   {"growth", growth},
               {"vectors", vectors}, {"borders", borders}, {"fresh", fresh}};
    CHECK(count == 2);
    for (size_t i = 0; i < sizeof all / sizeof *all; i++) {
        if (strcmp(arguments[1], all[i].word) == 0) {
            all[i].does();
            return puts("as promised") < 0;
        }
    }
    return 2;
}
