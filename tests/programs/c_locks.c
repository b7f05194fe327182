/* Every call of terral.h on named locks, used well and used badly. The only argument: the
 * instance's directory. */
#define _POSIX_C_SOURCE 200809L
#include <fcntl.h>
#include <pthread.h>
#include <time.h>

#include "terral_check.h"

static terral_t *t;
static volatile int heard;

static void hears(void *context, int news) {
    CHECK(context == &heard);
    heard |= news;
}

static void names(void) {
    NONE(terral_lock_acquire(NULL, "a", TERRAL_LOCK_EXCLUSIVE, 0, 0), EINVAL);
    NONE(terral_lock_acquire(t, NULL, TERRAL_LOCK_EXCLUSIVE, 0, 0), EINVAL);
    NONE(terral_lock_acquire(t, "", TERRAL_LOCK_EXCLUSIVE, 0, 0), EINVAL);
    NONE(terral_lock_acquire(t, "a/b", TERRAL_LOCK_EXCLUSIVE, 0, 0), EINVAL);
    NONE(terral_lock_acquire(t, ".a", TERRAL_LOCK_EXCLUSIVE, 0, 0), EINVAL);
    NONE(terral_lock_acquire(t, "a", 2, 0, 0), EINVAL);
    NONE(terral_lock_acquire(t, "a", TERRAL_LOCK_SHARED, 0, 99), EINVAL);
    NONE(terral_lock_acquire(t, "a", TERRAL_LOCK_SHARED, 0, -1), EINVAL);
    FAILS(terral_lock_release(NULL), EINVAL);
    FAILS(terral_lock_is_wanted(NULL), EINVAL);
    FAILS(terral_lock_tell(NULL, hears, NULL), EINVAL);
    FAILS(terral_fence(NULL, NULL), EINVAL);
    FAILS(terral_object_fence(NULL, NULL), EINVAL);
    FAILS(terral_txn_must_hold(NULL, NULL), EINVAL);
    CHECK(terral_lock_token(NULL) == 0 && terral_lock_is_held(NULL) == 0);
}

static void *waits(void *nothing) {
    terral_lock_t *lock = terral_lock_acquire(t, "a", TERRAL_LOCK_EXCLUSIVE, 10000, 0);
    CHECK(lock != NULL && terral_lock_release(lock) == 0);
    return nothing;
}

static void locks(void) {
    terral_lock_t *lock = terral_lock_acquire(t, "a", TERRAL_LOCK_EXCLUSIVE, -1, 0);
    CHECK(lock != NULL);
    uint64_t token = terral_lock_token(lock);
    CHECK(token > 0 && terral_lock_is_held(lock) == 1 && terral_lock_is_wanted(lock) == 0);
    FAILS(terral_lock_tell(lock, NULL, NULL), EINVAL);
    CHECK(terral_lock_tell(lock, hears, (void *)&heard) == 0);
    NONE(terral_lock_acquire(t, "a", TERRAL_LOCK_EXCLUSIVE, 0, 0), EAGAIN);
    NONE(terral_lock_acquire(t, "a", TERRAL_LOCK_SHARED, 20, 0), EAGAIN);
    pthread_t other;
    CHECK(pthread_create(&other, NULL, waits, NULL) == 0);
    CHECK(terral_lock_release(lock) == 0);
    CHECK(pthread_join(other, NULL) == 0);
    lock = terral_lock_acquire(t, "a", TERRAL_LOCK_SHARED, 0, 500);
    terral_lock_t *beside = terral_lock_acquire(t, "a", TERRAL_LOCK_SHARED, 0, 500);
    CHECK(lock != NULL && beside != NULL && terral_lock_token(lock) > token);
    CHECK(terral_lock_token(lock) == terral_lock_token(beside));
    CHECK(terral_lock_release(beside) == 0 && terral_lock_release(lock) == 0);
}

static void fences(void) {
    terral_file_t *f = terral_open(t, "fenced", O_RDWR | O_CREAT, 0644);
    terral_file_t *plain = terral_open(t, "fenced", O_RDWR, 0);
    terral_container_t *c = terral_container_create(t, "locked", 0755);
    terral_object_t *o = terral_object_create(c, NULL);
    terral_lock_t *lock = terral_lock_acquire(t, "a", TERRAL_LOCK_EXCLUSIVE, -1, 0);
    CHECK(f != NULL && plain != NULL && o != NULL && lock != NULL);
    FAILS(terral_fence(f, NULL), EINVAL);
    CHECK(terral_fence(f, lock) == 0 && terral_object_fence(o, lock) == 0);
    CHECK(terral_pwrite(f, "new", 3, 0) == 3 && terral_object_write(o, "new", 3, 0) == 0);
    FAILS(terral_pwrite(plain, "old", 3, 0), ESTALE);
    FAILS(terral_ftruncate(plain, 0), ESTALE);
    terral_txn_t *txn = terral_txn_begin(t);
    FAILS(terral_txn_must_hold(txn, NULL), EINVAL);
    CHECK(terral_txn_must_hold(txn, lock) == 0 && terral_txn_mkdir(txn, "held", 0755) == 0);
    terral_txn_t *late = terral_txn_begin(t);
    CHECK(terral_txn_must_hold(late, lock) == 0 && terral_txn_mkdir(late, "late", 0755) == 0);
    CHECK(terral_txn_commit(txn) == 0 && terral_lock_release(lock) == 0);
    lock = terral_lock_acquire(t, "a", TERRAL_LOCK_EXCLUSIVE, -1, 0);
    FAILS(terral_txn_commit(late), ESTALE);
    CHECK(terral_pwrite(f, "yet", 3, 0) == 3);
    CHECK(terral_fence(plain, lock) == 0 && terral_pwrite(plain, "own", 3, 0) == 3);
    FAILS(terral_pwrite(f, "old", 3, 0), ESTALE);
    CHECK(terral_object_truncate(o, 0) == 0); /* no later one has fenced it */
    CHECK(terral_object_close(o) == 0 && terral_lock_release(lock) == 0);
    CHECK(terral_close(f) == 0 && terral_close(plain) == 0);
    terral_container_close(c);
}

int main(int argc, char **argv) {
    CHECK(argc == 2);
    t = terral_connect(argv[1]);
    CHECK(t != NULL);
    names();
    locks();
    fences();
    terral_disconnect(t);
    puts("c_locks: all well");
    return 0;
}
