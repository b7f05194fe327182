/* Transactions of programs on several machines, over names that each of them changes.
 *
 *   begin           what `count` and `look` need
 *   count WHO N     counts on so often, by one transaction each, as nobody else has in between
 *   look FLAG       looks until there is such a file, outside; says how often that came to the same
 *   container       what `objects` needs
 *   objects WHO     gives its own objects names, another machine's a further one, and removes that
 *   place           an object of this machine, with a step
 *   advance N TIMES sets the steps of all that were placed to 1, 2, ..., each by one transaction of
 *                   which N servers know; says each that came to be, and why the next did not
 *   steps SERVER... says those of the objects of these servers
 *   hand TIMES      gives all that were placed a name `out/SERVER/1`, `2`, ..., each time by one
 *                   transaction, which takes the one before
 */
#define _POSIX_C_SOURCE 200809L
#include <fcntl.h>
#include <stdlib.h>
#include <unistd.h>

#include "terral_check.h"

static terral_t *t;

static int number(void *context, const char *name, uint32_t mode) {
    (void)mode;
    char *end;
    CHECK(*(long *)context < 0); /* There is one. */
    *(long *)context = strtol(name, &end, 10);
    CHECK(*end == 0);
    return 0;
}

static long count_in(const char *directory) {
    long count = -1;
    CHECK(terral_list(t, directory, number, &count) == 0 && count >= 0);
    return count;
}

static const char *path(const char *directory, const char *name, long count) {
    static char paths[8][64];
    static int next;
    char *at = paths[next++ % 8];
    snprintf(at, 64, "%s/%s%ld", directory, name, count);
    return at;
}

static void says(const char *name, long count) {
    char text[24];
    int length = snprintf(text, sizeof text, "%ld", count);
    terral_file_t *file = terral_open(t, name, O_WRONLY | O_CREAT | O_TRUNC, 0644);
    CHECK(file != NULL && terral_pwrite(file, text, length, 0) == length);
    CHECK(terral_close(file) == 0);
}

static long said(const char *name) {
    char text[24] = "";
    terral_file_t *file = terral_open(t, name, O_RDONLY, 0);
    CHECK(file != NULL && terral_pread(file, text, sizeof text - 1, 0) > 0);
    CHECK(terral_close(file) == 0);
    return atol(text);
}

static void begin(void) {
    CHECK(terral_mkdir(t, "log", 0755) == 0 && terral_mkdir(t, "new", 0755) == 0);
    CHECK(terral_mkdir(t, "a", 0755) == 0 && terral_mkdir(t, "b", 0755) == 0);
    says("a/0", 0);
    CHECK(terral_mkdir(t, "b/0", 0755) == 0);
    says("latest", 0);
}

static void count(const char *who, long times) {
    for (long i = 0; i < times; i++) {
        for (;;) {
            long at = count_in("a");
            /* A file of this machine, which takes the place of another one's. */
            const char *own = path("new", who, 0);
            says(own, at + 1);
            terral_txn_t *txn = terral_txn_begin(t);
            CHECK(terral_txn_rename(txn, path("a", "", at), path("a", "", at + 1), 1) == 0);
            CHECK(terral_txn_mkdir(txn, path("b", "", at + 1), 0755) == 0);
            CHECK(terral_txn_rmdir(txn, path("b", "", at)) == 0);
            CHECK(terral_txn_rename(txn, own, "latest", TERRAL_REPLACE) == 0);
            CHECK(terral_txn_mkdir(txn, path("log", "", at), 0755) == 0);
            if (terral_txn_commit(txn) == 0)
                break;
            if (errno != ENOENT) {
                printf("%s: %s\n", who, terral_error());
                exit(1);
            }
        }
    }
    printf("%s counted\n", who);
}

/* Looks until `over` is there; once it has looked for the first time `begun` is. */
static void look(const char *over, const char *begun) {
    long looks = 0;
    while (access(over, F_OK) != 0) {
        long first = count_in("a"), last = said("latest"), second = count_in("b");
        long again = count_in("a");
        if (first > last || last > second || second > again) {
            printf("a part: %ld, %ld, %ld, %ld\n", first, last, second, again);
            exit(1);
        }
        if (looks++ == 0)
            close(creat(begun, 0600));
    }
    printf("%s\n", looks > 5 ? "looked" : "looked too seldom");
}

static int other(void *context, const struct terral_address *address) {
    struct terral_address *own = context;
    if (address->server == own->server)
        return 0;
    *own = *address;
    return 1;
}

static void objects(const char *who) {
    terral_container_t *c = terral_container_open(t, "run");
    struct terral_address at[3];
    char out[64], field[80], moved[80];
    snprintf(out, sizeof out, "out/%s", who);
    snprintf(field, sizeof field, "%s/field", out);
    snprintf(moved, sizeof moved, "%s/moved", out);
    CHECK(c != NULL);
    for (int i = 0; i < 3; i++) {
        terral_object_t *o = terral_object_create(c, NULL);
        CHECK(o != NULL && terral_object_write(o, who, strlen(who), 0) == 0);
        CHECK(terral_object_address(o, &at[i]) == 0 && terral_object_close(o) == 0);
    }
    int64_t step = 7;
    terral_txn_t *txn = terral_txn_begin(t);
    CHECK(terral_txn_mkdir(txn, out, 0755) == 0);
    CHECK(terral_txn_bind(txn, c, &at[0], field) == 0);
    CHECK(terral_txn_set_attribute(txn, c, &at[0], "step", TERRAL_INTEGER, &step, 8) == 0);
    CHECK(terral_txn_move(txn, c, &at[1], moved) == 0);
    CHECK(terral_txn_remove(txn, c, &at[2]) == 0);
    CHECK(terral_txn_must_not_exist(txn, "stopped") == 0);
    CHECK(terral_txn_commit(txn) == 0);
    struct terral_address theirs = at[0];
    if (terral_container_list(c, other, &theirs) == 1) {
        /* One that another machine has gets a further name, with what is here; or all fails. */
        snprintf(field, sizeof field, "%s/theirs", out);
        txn = terral_txn_begin(t);
        CHECK(terral_txn_bind(txn, c, &theirs, field) == 0);
        CHECK(terral_txn_rename(txn, moved, "out/none/moved", TERRAL_KEEP) == 0);
        FAILS(terral_txn_commit(txn), ENOENT);
        CHECK(strncmp(terral_error(), "operation 1: ", 13) == 0);
        struct terral_attributes seen;
        FAILS(terral_stat(t, field, &seen), ENOENT);
        txn = terral_txn_begin(t);
        CHECK(terral_txn_bind(txn, c, &theirs, field) == 0);
        CHECK(terral_txn_rename(txn, moved, path(out, "moved", 1), TERRAL_KEEP) == 0);
        CHECK(terral_txn_rename(txn, path(out, "moved", 1), moved, TERRAL_KEEP) == 0);
        CHECK(terral_txn_commit(txn) == 0);
        CHECK(terral_stat(t, field, &seen) == 0 && seen.links == 3);
        /* Its attributes are set, with what is here. */
        int64_t is = 0;
        txn = terral_txn_begin(t);
        CHECK(terral_txn_rename(txn, moved, path(out, "moved", 0), TERRAL_KEEP) == 0);
        CHECK(terral_txn_set_attribute(txn, c, &theirs, "step", TERRAL_INTEGER, &step, 8) == 0);
        CHECK(terral_txn_rename(txn, path(out, "moved", 0), moved, TERRAL_KEEP) == 0);
        CHECK(terral_txn_commit(txn) == 0);
        terral_object_t *o = terral_object_open(c, &theirs, 0);
        CHECK(o != NULL && terral_object_attribute(o, "step", NULL, &is, 8) == 8 && is == step);
        CHECK(terral_object_close(o) == 0);
        txn = terral_txn_begin(t);
        CHECK(terral_txn_rename(txn, moved, "out/moved", TERRAL_REPLACE) == 0);
        CHECK(terral_txn_remove(txn, c, &theirs) == 0);
        CHECK(terral_txn_commit(txn) == 0);
    }
    terral_container_close(c);
    printf("%s: all well\n", who);
}

/* All objects that were placed, a few. */
static struct terral_address placed[8];
static int placings;

static int one_more(void *context, const struct terral_address *address) {
    (void)context;
    CHECK(placings < 8);
    placed[placings++] = *address;
    return 0;
}

static terral_container_t *all_placed(void) {
    terral_container_t *c = terral_container_open(t, "run");
    CHECK(c != NULL && terral_container_list(c, one_more, NULL) == 0);
    return c;
}

static void place(void) {
    terral_container_t *c = terral_container_open(t, "run");
    terral_object_t *o = c == NULL ? NULL : terral_object_create(c, NULL);
    struct terral_address at;
    int64_t none = 0;
    CHECK(o != NULL && terral_object_address(o, &at) == 0 && terral_object_close(o) == 0);
    terral_txn_t *txn = terral_txn_begin(t);
    CHECK(terral_txn_set_attribute(txn, c, &at, "step", TERRAL_INTEGER, &none, 8) == 0);
    CHECK(terral_txn_commit(txn) == 0);
    terral_container_close(c);
}

static void advance(size_t servers, long times) {
    terral_container_t *c = all_placed();
    for (int64_t step = 1; step <= times; step++) {
        terral_txn_t *txn = terral_txn_begin(t);
        CHECK(terral_txn_copies(txn, servers) == 0);
        for (int i = 0; i < placings; i++) {
            const struct terral_address *at = &placed[i];
            CHECK(terral_txn_set_attribute(txn, c, at, "step", TERRAL_INTEGER, &step, 8) == 0);
        }
        if (terral_txn_commit(txn) != 0) {
            printf("%d: %s\n", errno, terral_error());
            exit(1);
        }
        printf("%ld\n", (long)step);
        fflush(stdout);
    }
    terral_container_close(c);
}

static void steps(char **servers) {
    terral_container_t *c = all_placed();
    for (; *servers != NULL; servers++)
        for (int i = 0; i < placings; i++) {
            int64_t step = -1;
            if (placed[i].server != strtoul(*servers, NULL, 10))
                continue;
            terral_object_t *o = terral_object_open(c, &placed[i], 0);
            CHECK(o != NULL);
            if (terral_object_attribute(o, "step", NULL, &step, 8) == 8)
                printf("%ld\n", (long)step);
            else
                printf("%d: %s\n", errno, terral_error());
            CHECK(terral_object_close(o) == 0);
        }
    terral_container_close(c);
}

static void hand(long times) {
    terral_container_t *c = all_placed();
    char name[16];
    CHECK(terral_mkdir(t, "out/all", 0755) == 0);
    for (long i = 1; i <= times; i++) {
        terral_txn_t *txn = terral_txn_begin(t);
        for (int j = 0; j < placings; j++) {
            snprintf(name, sizeof name, "%d-", j);
            CHECK(terral_txn_bind(txn, c, &placed[j], path("out/all", name, i)) == 0);
            if (i > 1)
                CHECK(terral_txn_unlink(txn, path("out/all", name, i - 1)) == 0);
        }
        CHECK(terral_txn_mkdir(txn, path("out/all", "at-", i), 0755) == 0);
        if (terral_txn_commit(txn) != 0) {
            printf("%ld: %s\n", i, terral_error());
            exit(1);
        }
    }
    terral_container_close(c);
    printf("handed\n");
}

int main(int count_of, char **arguments) {
    CHECK(count_of >= 2);
    t = terral_connect(NULL);
    CHECK(t != NULL);
    const char *what = arguments[1];
    if (strcmp(what, "begin") == 0)
        begin();
    else if (strcmp(what, "count") == 0)
        count(arguments[2], atol(arguments[3]));
    else if (strcmp(what, "look") == 0)
        look(arguments[2], arguments[3]);
    else if (strcmp(what, "container") == 0)
        CHECK(terral_container_create(t, "run", 0755) != NULL && terral_mkdir(t, "out", 0755) == 0);
    else if (strcmp(what, "place") == 0)
        place();
    else if (strcmp(what, "advance") == 0)
        advance((size_t)atol(arguments[2]), atol(arguments[3]));
    else if (strcmp(what, "steps") == 0)
        steps(arguments + 2);
    else if (strcmp(what, "hand") == 0)
        hand(atol(arguments[2]));
    else
        objects(arguments[2]);
    terral_disconnect(t);
    return 0;
}
