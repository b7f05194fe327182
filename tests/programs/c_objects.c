/* Every call of terral.h on objects, transactions and checkpoints, used well and used badly. The
 * only argument: the instance's directory. */
#define _POSIX_C_SOURCE 200809L
#include <errno.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <unistd.h>

#include "terral_check.h"

static terral_t *t;
static char block[300000];
static char back[300000];

static int first(void *context, const struct terral_address *address) {
    *(struct terral_address *)context = *address;
    return 1;
}

static int counts(void *context, const struct terral_address *address) {
    CHECK(address->server < 16384);
    ++*(int *)context;
    return 0;
}

static int is_unit(void *context, const char *key) {
    CHECK(strcmp(key, "unit") == 0);
    ++*(int *)context;
    return 0;
}

static void containers(void) {
    NONE(terral_container_create(t, "a/b", 0755), EINVAL);
    NONE(terral_container_create(t, "", 0755), EINVAL);
    NONE(terral_container_create(t, "..", 0755), EINVAL);
    NONE(terral_container_create(t, NULL, 0755), EINVAL);
    NONE(terral_container_create(NULL, "run", 0755), EINVAL);
    NONE(terral_container_open(t, "run"), ENOENT);
    NONE(terral_container_at(t, "nowhere"), ENOENT);
    terral_container_t *c = terral_container_create(t, "run", 0755);
    CHECK(c != NULL);
    NONE(terral_container_create(t, "run", 0755), EEXIST);
    terral_container_close(c);
    terral_container_close(NULL);
    c = terral_container_open(t, "run");
    CHECK(c != NULL);
    struct terral_object_id id;
    CHECK(terral_object_id_random(&id) == 0);
    FAILS(terral_object_id_random(NULL), EINVAL);
    terral_object_t *o = terral_object_create(c, &id);
    CHECK(o != NULL && terral_object_close(o) == 0);
    NONE(terral_object_create(c, &id), EEXIST);
    NONE(terral_object_create(NULL, &id), EINVAL);
    o = terral_object_create(c, NULL);
    CHECK(o != NULL && terral_object_close(o) == 0);
    int all = 0;
    struct terral_address one;
    CHECK(terral_container_list(c, counts, &all) == 0 && all == 2);
    CHECK(terral_container_list(c, first, &one) == 1);
    FAILS(terral_container_list(c, NULL, NULL), EINVAL);
    CHECK(terral_object_remove(c, &one) == 0);
    FAILS(terral_object_remove(c, &one), ENOENT);
    NONE(terral_object_open(c, &one, 0), ENOENT);
    one.server = 1 << 20;
    NONE(terral_object_open(c, &one, 0), EINVAL);
    NONE(terral_object_open(c, NULL, 0), EINVAL);
    CHECK(terral_container_flush(c) == 0);
    CHECK(terral_container_bind(c, "results") == 0);
    FAILS(terral_container_bind(c, "results"), EEXIST);
    terral_container_close(c);
    c = terral_container_at(t, "/results/");
    CHECK(c != NULL && terral_container_remove(c) == 0);
    NONE(terral_object_create(c, NULL), ENOENT);
    terral_container_close(c);
}

/* With one server there is one place. */
static void places(void) {
    struct terral_server servers[2];
    CHECK(sizeof servers[0] == 96 && terral_servers(t, servers, 2) == 1);
    CHECK(terral_servers(t, NULL, 0) == 1);
    CHECK(servers[0].number == 0 && servers[0].host[0] != 0);
    CHECK(servers[0].memory_bytes > 0 && servers[0].used_bytes <= servers[0].memory_bytes);
    FAILS(terral_servers(t, NULL, 1), EINVAL);
    FAILS(terral_servers(NULL, servers, 2), EINVAL);
    terral_container_t *c = terral_container_create(t, "placed", 0755);
    terral_object_t *o = terral_object_create_on(c, 0, NULL);
    struct terral_address address, copy;
    CHECK(o != NULL && terral_object_address(o, &address) == 0 && address.server == 0);
    CHECK(terral_object_close(o) == 0);
    NONE(terral_object_create_on(c, 0, &address.id), EEXIST);
    NONE(terral_object_create_on(c, 1, NULL), ENOENT);
    NONE(terral_object_create_on(c, 1 << 20, NULL), EINVAL);
    uint64_t least = 7;
    CHECK(terral_least_loaded(t, &least) == 0 && least == 0);
    FAILS(terral_least_loaded(t, NULL), EINVAL);
    o = terral_object_create_least_loaded(c, NULL);
    CHECK(o != NULL && terral_object_close(o) == 0);
    NONE(terral_object_create_least_loaded(c, &address.id), EEXIST);
    NONE(terral_object_create_striped(c, 0, 1000, NULL), EINVAL);
    NONE(terral_object_create_striped(c, 1 << 20, 1 << 20, NULL), EINVAL);
    NONE(terral_object_create_striped(c, 0, 1 << 20, &address.id), EEXIST);
    /* Of one machine: one part. */
    o = terral_object_create_striped(c, 4, 64 << 10, NULL);
    CHECK(o != NULL && terral_object_write(o, "striped", 7, 200 << 10) == 0);
    char striped[8] = {0};
    CHECK(terral_object_read(o, striped, 8, 200 << 10) == 7 && strcmp(striped, "striped") == 0);
    CHECK(terral_object_close(o) == 0);
    FAILS(terral_object_copy(c, &address, 0, &copy), EEXIST);
    FAILS(terral_object_copy(c, &address, 1, &copy), ENOENT);
    CHECK(terral_container_remove(c) == 0);
    terral_container_close(c);
}

static void moves_bytes(terral_object_t *o) {
    CHECK(terral_object_write(o, block, sizeof block, 0) == 0);
    CHECK(terral_object_read(o, back, sizeof back, 0) == (ssize_t)sizeof back);
    CHECK(memcmp(block, back, sizeof back) == 0);
    FAILS(terral_object_read(o, back, 1, -1), EINVAL);
    FAILS(terral_object_write(o, NULL, 1, 0), EINVAL);
    FAILS(terral_object_write(o, "x", 1, INT64_MAX), EFBIG);
    struct terral_extent two[2] = {{10, 3}, {400000, 2}};
    CHECK(terral_object_write_vector(o, two, 2, "abcde", 5) == 0);
    CHECK(terral_object_read_vector(o, two, 2, back, 5) == 5 && memcmp(back, "abcde", 5) == 0);
    two[1].at = 400001;
    CHECK(terral_object_read_vector(o, two, 2, back, 5) == 4 && back[4] == 0);
    FAILS(terral_object_write_vector(o, two, 2, "abcde", 4), EINVAL);
    FAILS(terral_object_write_vector(o, NULL, 2, "abcde", 5), EINVAL);
    FAILS(terral_object_write_vector(o, two, SIZE_MAX, "abcde", 5), EINVAL);
    FAILS(terral_object_read_vector(o, two, 65537, back, 5), EINVAL);
    two[1].length = UINT64_MAX;
    FAILS(terral_object_read_vector(o, two, 2, back, 2), EFBIG);
    CHECK(terral_object_write_vector(o, NULL, 0, NULL, 0) == 0);
    CHECK(terral_object_punch(o, 10, 2) == 0 && terral_object_read(o, back, 3, 10) == 3);
    CHECK(memcmp(back, "\0\0c", 3) == 0);
    FAILS(terral_object_punch(o, -1, 2), EINVAL);
    CHECK(terral_object_truncate(o, 20) == 0 && terral_object_sync(o) == 0);
    FAILS(terral_object_truncate(o, -1), EINVAL);
}

static void submits(terral_object_t *o) {
    struct terral_extent one = {0, sizeof block}, small = {5, 2};
    terral_request_t *all[8];
    for (int at = 0; at < 8; at++) {
        one.at = (uint64_t)at * sizeof block;
        all[at] = terral_object_submit_write(o, &one, 1, block, sizeof block);
        CHECK(all[at] != NULL);
    }
    for (int at = 0; at < 8; at++) {
        CHECK(terral_object_wait(all[at], -1) == (ssize_t)sizeof block);
    }
    memset(back, 0, sizeof back);
    terral_request_t *read = terral_object_submit_read(o, &one, 1, back, sizeof back);
    CHECK(read != NULL && terral_object_wait(read, 60000) == (ssize_t)sizeof back);
    CHECK(memcmp(block, back, sizeof back) == 0);
    read = terral_object_submit_read(o, &small, 1, back, 2);
    CHECK(read != NULL && terral_object_test(read) == 1 && terral_object_wait(read, 0) == 2);
    one.at = 8 * sizeof block - 1;
    read = terral_object_submit_read(o, &one, 1, back, sizeof back);
    CHECK(read != NULL && terral_object_wait(read, -1) == 1);
    NONE(terral_object_submit_read(o, &one, 1, back, 1), EINVAL);
    NONE(terral_object_submit_read(o, &one, 1, NULL, sizeof back), EINVAL);
    NONE(terral_object_submit_write(NULL, &one, 1, block, sizeof block), EINVAL);
    one.at = UINT64_MAX;
    NONE(terral_object_submit_write(o, &one, 1, block, sizeof block), EFBIG);
    FAILS(terral_object_wait(NULL, 0), EINVAL);
    FAILS(terral_object_test(NULL), EINVAL);
    one.at = 0;
    read = terral_object_submit_read(o, &one, 1, back, sizeof back);
    pid_t child = fork();
    if (child == 0) {
        errno = 0;
        _exit(terral_object_wait(read, -1) == -1 && errno == EBADF ? 0 : 1);
    }
    int status = 1;
    CHECK(child > 0 && waitpid(child, &status, 0) == child && status == 0);
    CHECK(read != NULL && terral_object_wait(read, -1) == (ssize_t)sizeof back);
}

static void on_condition(terral_object_t *o) {
    uint64_t id = 0, later, old;
    struct terral_extent two[2] = {{1, 2}, {400000, 1}};
    CHECK(terral_object_update_id(o, &id) == 0 && id != 0);
    FAILS(terral_object_update_id(o, NULL), EINVAL);
    FAILS(terral_object_update_id(NULL, &id), EINVAL);
    later = old = id;
    CHECK(terral_object_write_if(o, &later, two, 2, "xyz", 3) == 0 && later > id);
    CHECK(terral_object_read_vector(o, two, 2, back, 3) == 3 && memcmp(back, "xyz", 3) == 0);
    FAILS(terral_object_write_if(o, &old, two, 2, "abc", 3), EAGAIN);
    CHECK(old == id && terral_object_update_id(o, &id) == 0 && id == later);
    CHECK(terral_object_write(o, "!", 1, 0) == 0);
    FAILS(terral_object_write_if(o, &later, two, 2, "abc", 3), EAGAIN);
    CHECK(terral_object_update_id(o, &id) == 0 && id > later);
    FAILS(terral_object_write_if(o, NULL, two, 2, "abc", 3), EINVAL);
    FAILS(terral_object_write_if(o, &id, two, 2, "abc", 2), EINVAL);
    FAILS(terral_object_write_if(o, &id, NULL, 2, "abc", 3), EINVAL);
    two[1].at = UINT64_MAX;
    FAILS(terral_object_write_if(o, &id, two, 2, "abc", 3), EFBIG);
    two[0].length = sizeof block;
    FAILS(terral_object_write_if(o, &id, two, 1, block, sizeof block), E2BIG);
    CHECK(terral_object_write_if(o, &id, NULL, 0, NULL, 0) == 0);
    CHECK(terral_object_truncate(o, 20) == 0);
}

static void attributes(terral_object_t *o) {
    double dt = 0.5, seen = 0;
    int type = 0, keys = 0;
    CHECK(terral_object_set_attribute(o, "dt", TERRAL_REAL, &dt, sizeof dt) == 0);
    CHECK(terral_object_set_attribute(o, "unit", TERRAL_TEXT, "K", 1) == 0);
    CHECK(terral_object_attribute(o, "dt", &type, &seen, sizeof seen) == 8 && seen == dt);
    CHECK(type == TERRAL_REAL && terral_object_attribute(o, "unit", NULL, NULL, 0) == 1);
    FAILS(terral_object_attribute(o, "dt", &type, &seen, 7), ERANGE);
    FAILS(terral_object_attribute(o, "none", &type, &seen, 8), ENODATA);
    FAILS(terral_object_set_attribute(o, "dt", TERRAL_INTEGER, &dt, 4), EINVAL);
    FAILS(terral_object_set_attribute(o, "dt", 'x', &dt, 8), EINVAL);
    FAILS(terral_object_set_attribute(o, "dt", TERRAL_BYTES, block, 8192), E2BIG);
    CHECK(terral_object_set_attribute(o, "dt", 0, NULL, 0) == 0);
    FAILS(terral_object_set_attribute(o, "dt", 0, NULL, 0), ENODATA);
    CHECK(terral_object_attributes(o, is_unit, &keys) == 0 && keys == 1);
}

static void objects(void) {
    terral_container_t *c = terral_container_create(t, "run", 0755);
    struct terral_object_id id, other;
    CHECK(terral_object_id_derive("heat", 3, 10, &id) == 0);
    CHECK(terral_object_id_derive("heat", 10, 3, &other) == 0 && id.low != other.low);
    terral_object_t *o = terral_object_create(c, &id);
    CHECK(o != NULL);
    moves_bytes(o);
    submits(o);
    on_condition(o);
    attributes(o);
    struct terral_address at;
    struct terral_object_status status;
    CHECK(terral_object_address(o, &at) == 0 && memcmp(&at.id, &id, sizeof id) == 0);
    FAILS(terral_object_seal(c, &at), EBUSY);
    CHECK(terral_object_close(o) == 0);
    FAILS(terral_object_close(NULL), EINVAL);
    CHECK(terral_object_seal(c, &at) == 0);
    NONE(terral_object_open(c, &at, 1), EACCES);
    o = terral_object_open(c, &at, 0);
    CHECK(o != NULL);
    FAILS(terral_object_write(o, "x", 1, 0), EBADF);
    CHECK(terral_object_close(o) == 0);
    CHECK(terral_object_stat(c, &at, &status) == 0);
    CHECK(status.size_bytes == 20 && status.sealed == 1 && status.safe == 0);
    CHECK(terral_object_bind(c, &at, "name") == 0);
    FAILS(terral_object_bind(c, &at, "name"), EEXIST);
    CHECK(terral_object_move(c, &at, "other") == 0);
    FAILS(terral_object_stat(c, &at, &status), ENOENT);
    CHECK(terral_unlink(t, "name") == 0 && terral_unlink(t, "other") == 0);
    CHECK(terral_container_remove(c) == 0);
    terral_container_close(c);
}

static void checkpoints(void) {
    struct terral_part parts[3];
    uint64_t attempt, seen;
    terral_checkpoints_t *all = terral_checkpoints_open(t, "points", 1, 0755);
    FAILS(terral_checkpoints_copies(all, 3), EINVAL);
    FAILS(terral_checkpoints_copies(NULL, 2), EINVAL);
    CHECK(terral_checkpoints_copies(all, 2) == 0);
    NONE(terral_checkpoint_begin(all, 1), EOPNOTSUPP);
    CHECK(terral_checkpoints_copies(all, 1) == 0);
    CHECK(all != NULL);
    NONE(terral_restart_open(all, -1), ENOENT);
    NONE(terral_restart_open(all, 7), ENOENT);
    NONE(terral_restart_open(all, -2), EINVAL);
    for (uint64_t step = 1; step <= 2; step++) {
        terral_checkpoint_t *one = terral_checkpoint_begin(all, step);
        CHECK(one != NULL && terral_checkpoint_attempt(one, &attempt) == 0);
        terral_checkpoint_t *two = terral_checkpoint_join(all, step, attempt);
        CHECK(two != NULL);
        NONE(terral_checkpoint_join(all, step, attempt + 1), ENOENT);
        CHECK(terral_checkpoint_dump(two, 1, 1000, block + 1000, 9000, &parts[0]) == 0);
        FAILS(terral_checkpoint_dump(two, 1, 1000, block, 1, &parts[1]), EEXIST);
        CHECK(terral_checkpoint_dump(one, 0, 0, block, 1000, &parts[1]) == 0);
        terral_object_t *o = terral_checkpoint_create(one, 0, 10000);
        CHECK(o != NULL && terral_object_write(o, block + 10000, 5, 0) == 0);
        parts[2].at = 10000;
        parts[2].length = 5;
        CHECK(terral_object_address(o, &parts[2].address) == 0 && terral_object_close(o) == 0);
        terral_checkpoint_leave(two);
        CHECK(terral_checkpoint_end(one, parts, 3) == 0);
    }
    terral_checkpoint_t *bad = terral_checkpoint_begin(all, 3);
    FAILS(terral_checkpoint_end(bad, parts, 3), ENOENT);
    bad = terral_checkpoint_begin(all, 3);
    FAILS(terral_checkpoint_end(bad, NULL, 1), EINVAL);
    bad = terral_checkpoint_begin(all, 3);
    CHECK(terral_checkpoint_dump(bad, 0, 0, block, 1000, &parts[1]) == 0);
    parts[1].length = 999;
    FAILS(terral_checkpoint_end(bad, &parts[1], 1), EPROTO);
    bad = terral_checkpoint_begin(all, 3);
    CHECK(terral_checkpoint_abandon(bad) == 0);
    terral_restart_t *whole = terral_restart_open(all, -1);
    CHECK(whole != NULL && terral_restart_step(whole, &seen) == 0 && seen == 2);
    CHECK(terral_restart_size(whole, &seen) == 0 && seen == 10005);
    CHECK(terral_restart_read(whole, back, 20000, 0) == 10005);
    CHECK(memcmp(back, block, 10005) == 0);
    CHECK(terral_restart_read(whole, back, 100, 950) == 100);
    CHECK(memcmp(back, block + 950, 100) == 0);
    CHECK(terral_restart_read(whole, back, 1, INT64_MAX) == 0);
    terral_restart_close(whole);
    NONE(terral_restart_open(all, 1), ENOENT);
    terral_checkpoints_close(all);
}

static terral_txn_t *begin(void) {
    terral_txn_t *txn = terral_txn_begin(t);
    CHECK(txn != NULL);
    return txn;
}

static void refused(void) {
    NONE(terral_txn_begin(NULL), EINVAL);
    FAILS(terral_txn_commit(NULL), EINVAL);
    FAILS(terral_txn_unlink(NULL, "a"), EINVAL);
    terral_txn_abort(NULL);
    FAILS(terral_txn_copies(NULL, 2), EINVAL);
    terral_txn_t *txn = begin();
    FAILS(terral_txn_copies(txn, 3), EINVAL);
    CHECK(terral_txn_copies(txn, 2) == 0 && terral_txn_mkdir(txn, "copied", 0755) == 0);
    FAILS(terral_txn_commit(txn), EOPNOTSUPP); /* No other server is there. */
    CHECK(strstr(terral_error(), "two servers") != NULL);
    txn = begin();
    FAILS(terral_txn_rename(txn, "a", "b", 3), EINVAL);
    FAILS(terral_txn_rename(txn, "a", NULL, TERRAL_KEEP), EINVAL);
    FAILS(terral_txn_link(txn, NULL, "b"), EINVAL);
    FAILS(terral_txn_mkdir(txn, "../a", 0755), EINVAL);
    FAILS(terral_txn_bind(txn, NULL, NULL, "b"), EINVAL);
    FAILS(terral_txn_bind_container(txn, NULL, "b"), EINVAL);
    FAILS(terral_txn_must_be_unchanged(txn, "a", NULL), EINVAL);
    CHECK(terral_txn_mkdir(txn, "txn", 0755) == 0);
    terral_txn_abort(txn);
}

static void transactions(void) {
    struct terral_attributes seen;
    terral_container_t *c = terral_container_create(t, "txn-run", 0755);
    struct terral_address at[3];
    for (int i = 0; i < 3; i++) {
        terral_object_t *o = terral_object_create(c, NULL);
        CHECK(o != NULL && terral_object_write(o, "abc", 3, 0) == 0);
        CHECK(terral_object_address(o, &at[i]) == 0 && terral_object_close(o) == 0);
    }
    refused();
    terral_txn_t *txn = begin();
    int64_t step = 7;
    CHECK(terral_txn_mkdir(txn, "/txn/", 0777) == 0);
    CHECK(terral_txn_bind(txn, c, &at[0], "txn/a") == 0);
    CHECK(terral_txn_move(txn, c, &at[1], "txn/b") == 0);
    CHECK(terral_txn_remove(txn, c, &at[2]) == 0);
    CHECK(terral_txn_link(txn, "txn/b", "txn/c") == 0);
    CHECK(terral_txn_set_attribute(txn, c, &at[0], "step", TERRAL_INTEGER, &step, 8) == 0);
    FAILS(terral_txn_set_attribute(txn, c, &at[0], "step", 'x', &step, 8), EINVAL);
    CHECK(terral_txn_must_exist(txn, "txn/a") == 0);
    CHECK(terral_txn_must_not_exist(txn, "txn/d") == 0);
    FAILS(terral_stat(t, "txn", &seen), ENOENT);
    CHECK(terral_txn_commit(txn) == 0);
    CHECK(terral_stat(t, "txn/c", &seen) == 0 && seen.size_bytes == 3 && seen.links == 2);
    txn = begin();
    CHECK(terral_txn_unlink(txn, "txn/c") == 0);
    CHECK(terral_txn_mkdir(txn, "txn/b/below", 0755) == 0);
    FAILS(terral_txn_commit(txn), ENOTDIR);
    CHECK(strncmp(terral_error(), "operation 1: /txn/b/below", 25) == 0);
    txn = begin();
    CHECK(terral_txn_must_be_unchanged(txn, "txn/c", &seen) == 0);
    CHECK(terral_txn_rename(txn, "txn/a", "txn/b", TERRAL_EXCHANGE) == 0);
    CHECK(terral_txn_rename(txn, "txn/a", "txn/c", TERRAL_KEEP) == 0);
    FAILS(terral_txn_commit(txn), EEXIST);
    seen.modified_ns++;
    txn = begin();
    CHECK(terral_txn_must_be_unchanged(txn, "txn/c", &seen) == 0);
    FAILS(terral_txn_commit(txn), EAGAIN);
    txn = begin();
    CHECK(terral_txn_rename(txn, "txn/a", "txn/c", TERRAL_REPLACE) == 0);
    CHECK(terral_txn_unlink(txn, "txn/b") == 0 && terral_txn_unlink(txn, "txn/c") == 0);
    CHECK(terral_txn_rmdir(txn, "txn") == 0);
    CHECK(terral_txn_bind_container(txn, c, "txn") == 0);
    CHECK(terral_txn_commit(txn) == 0);
    terral_container_close(c);
    c = terral_container_at(t, "txn");
    int all = 0;
    CHECK(terral_container_list(c, counts, &all) == 0 && all == 1);
    CHECK(terral_container_remove(c) == 0);
    terral_container_close(c);
}

int main(int count, char **arguments) {
    CHECK(count == 2);
    CHECK(sizeof(struct terral_object_status) == 64 && sizeof(struct terral_part) == 40);
    for (size_t i = 0; i < sizeof block; i++) {
        block[i] = (char)(i * 31 + i / 4096);
    }
    t = terral_connect(arguments[1]);
    CHECK(t != NULL);
    containers();
    places();
    objects();
    transactions();
    checkpoints();
    terral_disconnect(t);
    puts("c_objects: all well");
    return 0;
}
