/* Terral: files in the memory of a server on this machine, for C and C++ programs that ask for
 * them.
 *
 * A program needs none of this to use Terral: `terral run` serves its ordinary file calls. This
 * library is for programs that want Terral whether or not they were started that way, want it
 * beside the ordinary file system, or cannot be preloaded into (static, setuid).
 *
 * PATHS are relative to the root of what the server serves. Slashes at their start or end, empty
 * components and `.` are ignored, so "", "/" and "." all are the root; `..` is refused (EINVAL).
 *
 * UNITS: sizes, lengths and offsets are bytes; times are nanoseconds since 1970 (UTC).
 *
 * ERRORS: a call that fails returns -1 (or NULL), sets errno, and leaves a message for
 * terral_error(). A call that succeeds may change errno too. NULL where there must be none,
 * negative offsets and sizes, and lengths above 64 TiB fail with EINVAL. Other errors are those
 * of the POSIX call of the same name, and from any call
 *   ENOTCONN   the server is gone; what it had is found by `terral recover`. A server that is
 *              started again within 10 seconds of its death is waited for, without any error.
 *   EBADF      the file is not open for this, or the process that opened it is gone
 *   ENFILE     the server's tables (files, open files, processes) are full
 *   EFBIG      beyond the largest file: 2^48 - 1 bytes
 *   EIO        the permanent directory failed
 * EINTR is never returned.
 *
 * THREADS: every call may be made from any thread, on the same handles too. A handle must not be
 * used during or after the terral_close or terral_disconnect that gives it back. Nothing here may
 * be called from a signal handler.
 *
 * FORK: a child may go on with the parent's connection and open files; position and append mode are
 * shared, as POSIX has it. A file ends with terral_close in the process that opened it, or with
 * that process; after that a child gets EBADF. terral_close in the child frees the child's handle
 * only. After vfork, or in the child of a process whose other threads were inside this library,
 * open anew.
 *
 * EXEC: nothing survives it but what was written.
 */
#ifndef TERRAL_H
#define TERRAL_H

#include <stddef.h>
#include <stdint.h>
#include <sys/types.h>
#include <sys/uio.h>

#ifdef __cplusplus
extern "C" {
#endif

/* A connection to a server. */
typedef struct terral terral_t;

/* An open file. */
typedef struct terral_file terral_file_t;

/* What terral_stat and terral_fstat give; 64 bytes on every machine. */
struct terral_attributes {
    uint64_t ino;         /* inode number, the same on every machine */
    uint64_t size_bytes;  /* 0 for a directory */
    uint32_t mode;        /* as in struct stat: type and permission bits */
    uint32_t links;       /* names; for directories 2 + subdirectories */
    uint32_t uid;         /* owner */
    uint32_t gid;         /* group */
    uint64_t accessed_ns; /* last read, kept as `relatime` does */
    uint64_t modified_ns; /* last write */
    uint64_t changed_ns;  /* last change of attributes */
    uint64_t reserved;    /* 0 */
};

/* What went wrong last in this thread, in one line, for people; "" if nothing has. Never NULL. Good
 * until the next call that fails in this thread. */
const char *terral_error(void);

/* Connecting. ---------------------------------------------------------------------------------- */

/* Connects to the server of an instance: a name as `terral serve --name` takes it, or a path of the
 * instance's directory. NULL: what $TERRAL_INSTANCE says, which `terral run` sets. The process's
 * umask is noted for files made through this connection. Connecting again costs little: a process
 * has one session per server, which lasts as long as the process.
 * ENOTCONN: there is no such server within reach, or the variable is not set; EACCES: it does not
 * serve this user; EPROTO: it is of another version. */
terral_t *terral_connect(const char *instance);

/* Gives a connection back. Files opened through it stay open. NULL is ignored. */
void terral_disconnect(terral_t *connection);

/* Opening. ------------------------------------------------------------------------------------- */

/* Opens a file, or a directory for reading only (which then can be asked for attributes). `flags`
 * are O_RDONLY, O_WRONLY or O_RDWR, with O_CREAT, O_EXCL, O_TRUNC, O_APPEND, O_DIRECTORY and
 * O_CLOEXEC (which is always so); any other fails with EINVAL. `mode` counts if a file is made;
 * the umask is taken off. */
terral_file_t *terral_open(terral_t *connection, const char *path, int flags, mode_t mode);

/* Closes a file and frees its handle, also when it fails. What was written stays with the server,
 * which brings it to the permanent directory. EBADF: the file was closed behind our back. */
int terral_close(terral_file_t *file);

/* Moving bytes. -------------------------------------------------------------------------------- */

/* Read at the file's position, which moves on. Fewer bytes than asked for, down to 0, come only
 * at the end of the file. `buffer` may be NULL if `length` is 0, here and below. */
ssize_t terral_read(terral_file_t *file, void *buffer, size_t length);
ssize_t terral_readv(terral_file_t *file, const struct iovec *vector, int count);

/* Write all at the file's position, which moves on; with O_APPEND, at its end in one piece. A
 * vector of up to 64 KiB is one write; of a longer one a failure in the middle gives what was
 * written till then. */
ssize_t terral_write(terral_file_t *file, const void *buffer, size_t length);
ssize_t terral_writev(terral_file_t *file, const struct iovec *vector, int count);

/* Read at `offset`, without moving the file's position. */
ssize_t terral_pread(terral_file_t *file, void *buffer, size_t length, int64_t offset);
ssize_t terral_preadv(terral_file_t *file, const struct iovec *vector, int count, int64_t offset);

/* Write all at `offset`, without moving the file's position; also with O_APPEND, as POSIX has it
 * and Linux has not. A gap before it reads as zeros. */
ssize_t terral_pwrite(terral_file_t *file, const void *buffer, size_t length, int64_t offset);
ssize_t terral_pwritev(terral_file_t *file, const struct iovec *vector, int count, int64_t offset);

/* Writes all at the end in one piece, whoever else appends, without moving the file's position;
 * needs no O_APPEND. */
ssize_t terral_append(terral_file_t *file, const void *buffer, size_t length);

/* Moves the file's position and gives it. `whence` is SEEK_SET, SEEK_CUR or SEEK_END; beyond the
 * end is allowed, before the start is EINVAL. */
int64_t terral_seek(terral_file_t *file, int64_t offset, int whence);

/* Makes a file this long: cuts it, or lengthens it with zeros. */
int terral_ftruncate(terral_file_t *file, int64_t size_bytes);
int terral_truncate(terral_t *connection, const char *path, int64_t size_bytes);

/* Returns when what was written is as safe as fsync under `terral run` makes it
 * (docs/semantics.md): it survives this process and the server being killed, not the machine. */
int terral_sync(terral_file_t *file);

/* Names. --------------------------------------------------------------------------------------- */

int terral_fstat(terral_file_t *file, struct terral_attributes *attributes);
int terral_stat(terral_t *connection, const char *path, struct terral_attributes *attributes);

/* Removes a file's name; who has the file open keeps it. */
int terral_unlink(terral_t *connection, const char *path);

/* Moves a file or directory, in the place of what has that name: `write, sync, rename` leaves
 * either the old file or the new one. */
int terral_rename(terral_t *connection, const char *from, const char *to);

/* Makes a directory (the umask is taken off `mode`), removes an empty one. */
int terral_mkdir(terral_t *connection, const char *path, mode_t mode);
int terral_rmdir(terral_t *connection, const char *path);

/* Gets one name of a directory; `mode` is its type, as in struct stat. Anything but 0 ends the
 * list. It may call whatever is declared here, and must return: no longjmp, no C++ exception. */
typedef int terral_name_callback(void *context, const char *name, uint32_t mode);

/* Calls `each` for every name but `.` and `..`, in the order of their bytes; the names are those
 * when it began. Gives 0 after the last, 1 if `each` ended it. */
int terral_list(terral_t *connection, const char *path, terral_name_callback *each, void *context);

/* Objects. ------------------------------------------------------------------------------------- */

/* Bytes that are found by an address: the container, the server on which they were created, and 128
 * bits that their creator has chosen. To create one asks nobody, on however many machines. What an
 * object is, and what it costs: docs/objects.md. */

/* A container: what objects are in, and the same users may use. A handle is used by one thread at a
 * time in terral_container_bind and terral_container_close, by any number in all else. */
typedef struct terral_container terral_container_t;

/* A vector call that was submitted. */
typedef struct terral_request terral_request_t;

/* An open object. */
typedef struct terral_object terral_object_t;

struct terral_object_id {
    uint64_t high;
    uint64_t low;
};

/* Which object of a container; may be sent to others, on machines of the same byte order. */
struct terral_address {
    struct terral_object_id id;
    uint64_t server; /* the machine on which it was created, 0 to 16383; 0 where there is one */
};

/* Bytes of an object that follow one another. */
struct terral_extent {
    uint64_t at;
    uint64_t length;
};

/* How an object is; 64 bytes. */
struct terral_object_status {
    uint64_t size_bytes;
    uint64_t modified_ns;  /* last write */
    uint64_t memory_bytes; /* in the memory of the machine that has it */
    uint64_t owed_bytes;   /* of those, what the permanent directory does not have yet */
    uint32_t sealed;       /* 1: nobody can change it any more */
    uint32_t safe;         /* 1: the permanent directory has it, whole, as it is now */
    uint64_t reserved[3];  /* 0 */
};

/* Makes a container. `name` has 1 to 200 bytes, no slash, and no dot in front; the umask is taken
 * off `mode`, which is that of a directory. Listings do not show it until it is bound to a name. */
terral_container_t *terral_container_create(terral_t *connection, const char *name, mode_t mode);

/* A container that was made, by its name, or that was bound, by its path. */
terral_container_t *terral_container_open(terral_t *connection, const char *name);
terral_container_t *terral_container_at(terral_t *connection, const char *path);

/* Gives a container a path, with all that is in it, in one step: what has an address is then the
 * file PATH/SERVER/ID. EEXIST: the path is taken. The handle goes on with it. */
int terral_container_bind(terral_container_t *container, const char *path);

/* Removes a container and all objects in it; the handle is still to be closed. ENOTEMPTY: somebody
 * goes on creating there. */
int terral_container_remove(terral_container_t *container);

/* Has all that was written brought to the permanent directory now, if there is one, without
 * waiting for it. */
int terral_container_flush(terral_container_t *container);

/* Frees a handle. NULL is ignored. */
void terral_container_close(terral_container_t *container);

/* Gets one address. As terral_name_callback. */
typedef int terral_address_callback(void *context, const struct terral_address *address);

/* Calls `each` for every object, in the order of servers and ids, as they were when it began.
 * Gives 0 after the last, 1 if `each` ended it. */
int terral_container_list(terral_container_t *container, terral_address_callback *each,
                          void *context);

/* An id that nobody else has; one that all derive who know job, rank and step. */
int terral_object_id_random(struct terral_object_id *id);
int terral_object_id_derive(const char *job, uint64_t rank, uint64_t step,
                            struct terral_object_id *id);

/* Creates an object on this machine and opens it for reading and writing. NULL for `id`: a random
 * one. EEXIST: there is one of this id here; of two who create it at once, one gets this. ENOENT:
 * the container is no more. */
terral_object_t *terral_object_create(terral_container_t *container,
                                      const struct terral_object_id *id);

/* The same on another machine of the run, whose server has this number (terral_servers): its bytes
 * are in that machine's memory once it is closed. ENOENT: there is no such server; EIO: it was
 * killed meanwhile, and may have created it. */
terral_object_t *terral_object_create_on(terral_container_t *container, uint64_t server,
                                         const struct terral_object_id *id);

/* The same on the machine of the run that has more memory free, of two chosen at random among those
 * that keep files: where many create at once, they do not all choose one. terral_object_address
 * says which it is. ENOSPC: no machine keeps files any more. */
terral_object_t *terral_object_create_least_loaded(terral_container_t *container,
                                                   const struct terral_object_id *id);

/* Creates an object whose bytes go round over the machines, `stripe_bytes` at a time: over `count`
 * of those that keep files, as far as there are so many, from this one on; 0: over all.
 * `stripe_bytes` is a multiple of 64 KiB; best is one of 2 MiB. It is one object, with one
 * address, and all calls are as on others, but: a call on bytes of several stripes is not done in
 * one step; update ids, names and copies are EOPNOTSUPP; bytes of a machine that is lost are EIO.
 * EINVAL: other stripes; EEXIST, ENOENT, EIO: as terral_object_create_on. */
terral_object_t *terral_object_create_striped(terral_container_t *container, uint64_t count,
                                              uint64_t stripe_bytes,
                                              const struct terral_object_id *id);

/* Has an object on another machine as well, with the bytes that it has now: another object, of the
 * same id, whose address is stored; its bytes are replaced if it is there. That machine gets them
 * itself. */
int terral_object_copy(terral_container_t *container, const struct terral_address *address,
                       uint64_t server, struct terral_address *copy);

/* A machine's server; 96 bytes. */
struct terral_server {
    uint64_t number; /* as in addresses; 0 where there is one */
    uint64_t memory_bytes;
    uint64_t used_bytes; /* of those */
    char host[72];       /* the name of its machine, cut short if it is longer */
};

/* The servers of the run that keep files and answer within two seconds, by their numbers: all are
 * asked. Stores as many as there is room for, and gives how many there are. */
ssize_t terral_servers(terral_t *connection, struct terral_server *servers, size_t room);

/* The number of the one of them that has more memory free, of two chosen at random. They are asked
 * if they have not said so to this machine within a second. ENOSPC: none is left. */
int terral_least_loaded(terral_t *connection, uint64_t *number);

/* Opens an object of any machine; for writing as well if `writes` is not 0. EACCES: then it is
 * sealed, or not this user's to write. EINVAL: no such server can be. */
terral_object_t *terral_object_open(terral_container_t *container,
                                    const struct terral_address *address, int writes);

/* Closes an object, once all that was submitted is done, and frees its handle, also when it fails.
 * What was written stays. */
int terral_object_close(terral_object_t *object);

int terral_object_address(terral_object_t *object, struct terral_address *address);

/* Reads at `at`: fewer bytes than asked for only at the end. Writes all at `at`; a gap before it
 * reads as zeros. */
ssize_t terral_object_read(terral_object_t *object, void *buffer, size_t length, int64_t at);
int terral_object_write(terral_object_t *object, const void *buffer, size_t length, int64_t at);

/* The same for up to 65,536 extents, whose bytes are packed one after the other; `length` is their
 * sum (else EINVAL). All are looked at before a byte is moved (EFBIG: one ends beyond any object).
 * Extents are written in their order. A read gives how many bytes were in the object; what is
 * beyond its end is zeros. */
ssize_t terral_object_read_vector(terral_object_t *object, const struct terral_extent *extents,
                                  size_t count, void *packed, size_t length);
int terral_object_write_vector(terral_object_t *object, const struct terral_extent *extents,
                               size_t count, const void *packed, size_t length);

/* The same, meanwhile: they return at once, a thread of the library does it (three at most for each
 * process, which begin with the first that needs one), and from then on until it was waited for the
 * buffer is the library's; extents are copied. At most 64 KiB of an object of this machine that are
 * in memory, and for which nobody is to be waited, are moved before they return, without a thread.
 * Between those under way there is no order, and each is to others as a vector call of another
 * thread. NULL: the call makes no sense (EINVAL, EFBIG), or there is no thread (EAGAIN); what fails
 * later is said to who waits. terral_object_close waits for all of an object. A forked child has
 * none of its parent's: waiting fails with EBADF there. */
terral_request_t *terral_object_submit_read(terral_object_t *object,
                                            const struct terral_extent *extents, size_t count,
                                            void *packed, size_t length);
terral_request_t *terral_object_submit_write(terral_object_t *object,
                                             const struct terral_extent *extents, size_t count,
                                             const void *packed, size_t length);

/* 1 if it is done, so that waiting waits no longer, else 0. */
int terral_object_test(const terral_request_t *request);

/* Waits for it, so many milliseconds at most (negative: as long as it takes), and frees the handle.
 * How many bytes were in the object, of a write all; ETIMEDOUT: it is not done yet, and the handle
 * stays. Each must be waited for once. */
ssize_t terral_object_wait(terral_request_t *request, int64_t timeout_ms);

/* The update id of an object: greater after each change of its bytes, size or attributes, by
 * whoever on whatever machine; maybe also without one, as when its server was killed. EBUSY,
 * ETXTBSY: somebody has it mapped to store there. */
int terral_object_update_id(terral_object_t *object, uint64_t *id);

/* Writes extents as terral_object_write_vector does, if the object has the update id `*id` still:
 * all of them or none, whoever is killed. Then `*id` is the one that it has from then on. EAGAIN:
 * it has another one, so somebody has changed it; E2BIG: more than 15 KiB, of which each extent
 * takes 16 bytes. */
int terral_object_write_if(terral_object_t *object, uint64_t *id,
                           const struct terral_extent *extents, size_t count, const void *packed,
                           size_t length);

/* Makes bytes zeros, as far as the object is long; their memory is kept. Makes it this long. */
int terral_object_punch(terral_object_t *object, int64_t at, int64_t length);
int terral_object_truncate(terral_object_t *object, int64_t size_bytes);

/* As terral_sync. */
int terral_object_sync(terral_object_t *object);

/* Types of attributes. Numbers are 8 bytes as this machine has them. */
enum { TERRAL_INTEGER = 'i', TERRAL_REAL = 'r', TERRAL_TEXT = 't', TERRAL_BYTES = 'b' };

/* Sets an attribute, or removes it if `value` is NULL (ENODATA: there is none). A key has 1 to 200
 * bytes, a value less than 8 KiB (E2BIG). */
int terral_object_set_attribute(terral_object_t *object, const char *key, int type,
                                const void *value, size_t length);

/* Gives the bytes of an attribute, and its type unless `type` is NULL. With a `length` of 0 only
 * how many they are; ERANGE: more than `length`. ENODATA: there is none. */
ssize_t terral_object_attribute(terral_object_t *object, const char *key, int *type, void *value,
                                size_t length);

/* Gets one key. As terral_name_callback. */
typedef int terral_key_callback(void *context, const char *key);
int terral_object_attributes(terral_object_t *object, terral_key_callback *each, void *context);

/* How an object is, and where it is safe. */
int terral_object_stat(terral_container_t *container, const struct terral_address *address,
                       struct terral_object_status *status);

/* Makes an object immutable. EBUSY: somebody has it open for writing, maybe the caller. */
int terral_object_seal(terral_container_t *container, const struct terral_address *address);

/* Removes an object; who has it open keeps it. */
int terral_object_remove(terral_container_t *container, const struct terral_address *address);

/* Gives an object a name beside its address (EEXIST: it is taken); makes it a file of this name
 * instead, in the place of what has it. */
int terral_object_bind(terral_container_t *container, const struct terral_address *address,
                       const char *path);
int terral_object_move(terral_container_t *container, const struct terral_address *address,
                       const char *path);

/* Named locks. --------------------------------------------------------------------------------- */

/* A lock of a name, of all machines, that one process has alone or several share. That of a process
 * that ends is free at once, that of one that is stopped or cut off once its lease is over. So who
 * has it alone gets a token, greater than all before it, and what it protects is fenced with that:
 * then nothing is written there with a lower one, whoever comes back. See docs/locks.md. */
typedef struct terral_lock terral_lock_t;

enum { TERRAL_LOCK_EXCLUSIVE = 0, TERRAL_LOCK_SHARED = 1 };

/* Takes a lock, with a name of 1 to 200 bytes, no slash, and no dot in front. Waits for it as long
 * as `timeout_ms` says, without end if that is negative. `lease_ms` is 100 to 3,600,000, or 0 for
 * 30 seconds; a thread that this starts renews it. EAGAIN: others have it for longer; EDEADLK: its
 * holder waits for this process; ENOLCK: there is no place for it. */
terral_lock_t *terral_lock_acquire(terral_t *connection, const char *name, int kind,
                                   int64_t timeout_ms, int64_t lease_ms);

/* The token. Whether it is this process's, as far as is known by the lease: 1 or 0. Whether
 * somebody waits for it: 1 or 0, or ESTALE if it is this process's no more. */
uint64_t terral_lock_token(const terral_lock_t *lock);
int terral_lock_is_held(const terral_lock_t *lock);
int terral_lock_is_wanted(const terral_lock_t *lock);

enum { TERRAL_LOCK_WANTED = 1, TERRAL_LOCK_LOST = 2 };

/* Is told, in a thread of this library, that somebody waits for the lock, or that it is lost. */
typedef void terral_lock_callback(void *context, int news);

/* Has `told` called with each of the two once, until the lock is given back. */
int terral_lock_tell(terral_lock_t *lock, terral_lock_callback *told, void *context);

/* A file, an object, that is open for writing is written with the lock's token from now on, and
 * nothing else may write it: ESTALE. To be called before anything is read that the lock protects.
 * ESTALE: the lock is this process's no more, or a later holder has fenced it; EBUSY, ETXTBSY: it
 * is mapped to be stored to. */
int terral_fence(terral_file_t *file, const terral_lock_t *lock);
int terral_object_fence(terral_object_t *object, const terral_lock_t *lock);

/* Gives it back and frees the handle, also when it fails. ESTALE: it was this process's no more, so
 * others may have had it meanwhile. */
int terral_lock_release(terral_lock_t *lock);

/* Transactions. -------------------------------------------------------------------------------- */

/* Operations on names and objects that come to be all together or not at all, whoever is killed
 * when. Each sees what those before it have done. Nothing of it has happened until its commit,
 * which is one message: the calls before only collect. Symbolic links on the way of a path are
 * followed then, that of the last component is not. One thread at a time uses a transaction. */
typedef struct terral_txn terral_txn_t;

/* One without operations. */
terral_txn_t *terral_txn_begin(terral_t *connection);

/* How a name is moved: in the place of what has the new one, unless something has it (EEXIST), or
 * so that the two change places. */
#define TERRAL_REPLACE 0
#define TERRAL_KEEP 1
#define TERRAL_EXCHANGE 2

int terral_txn_rename(terral_txn_t *txn, const char *from, const char *to, int how);

/* A further name of a file, which must be free. */
int terral_txn_link(terral_txn_t *txn, const char *from, const char *to);
int terral_txn_unlink(terral_txn_t *txn, const char *path);
int terral_txn_mkdir(terral_txn_t *txn, const char *path, mode_t mode);
int terral_txn_rmdir(terral_txn_t *txn, const char *path);

/* An object gets a name beside its address, which must be free; becomes a file of that name, in the
 * place of what has it; is removed; has an attribute set, or removed (`value` NULL). */
int terral_txn_bind(terral_txn_t *txn, terral_container_t *container,
                    const struct terral_address *address, const char *path);
int terral_txn_move(terral_txn_t *txn, terral_container_t *container,
                    const struct terral_address *address, const char *path);
int terral_txn_remove(terral_txn_t *txn, terral_container_t *container,
                      const struct terral_address *address);
int terral_txn_set_attribute(terral_txn_t *txn, terral_container_t *container,
                             const struct terral_address *address, const char *key, int type,
                             const void *value, size_t length);

/* A container gets a path, which must be free, with all that is in it; from then on it is found by
 * terral_container_at. */
int terral_txn_bind_container(terral_txn_t *txn, terral_container_t *container, const char *path);

/* All fails if nothing has this name (ENOENT), if something has (EEXIST), if what has it is not
 * what terral_stat has told, or is longer or shorter, or was written to since (EAGAIN). */
int terral_txn_must_exist(terral_txn_t *txn, const char *path);
int terral_txn_must_not_exist(terral_txn_t *txn, const char *path);
int terral_txn_must_be_unchanged(terral_txn_t *txn, const char *path,
                                 const struct terral_attributes *seen);

/* All fails (ESTALE) if a later holder has had this lock. */
int terral_txn_must_hold(terral_txn_t *txn, const terral_lock_t *lock);

/* How many servers, 1 (unless this is called) or 2, know whether it came to be, where attributes of
 * other machines' files are part of it: with 2, all of these are set or none, and nobody has to say
 * which, if this machine is lost for good meanwhile. What its own memory had alone is lost with it.
 * EINVAL: another number. Of the commit then, EOPNOTSUPP: the run has no other server; EIO: that
 * one does not answer; it is undone, unless this machine is lost before that one does. */
int terral_txn_copies(terral_txn_t *txn, size_t servers);

/* Has all of it done, or nothing, and frees the handle, also when it fails: as the first operation
 * does that cannot be done, whose number, from 0, is in terral_error(). E2BIG: more than 1,024
 * operations, or 16 KiB of paths and values; EOPNOTSUPP: what another machine's server alone
 * changes, as docs/transactions.md says. */
int terral_txn_commit(terral_txn_t *txn);

/* Frees it; nothing is done. */
void terral_txn_abort(terral_txn_t *txn);

/* Checkpoints. --------------------------------------------------------------------------------- */

/* A checkpoint is written by any number of processes, each an object of its own, and gets one name
 * when one of them ends it with what all of them have written. Whoever is killed when, the latest
 * is whole. The bytes of all are numbered through, so any number of processes reads them back. */

/* The checkpoints in one directory. */
typedef struct terral_checkpoints terral_checkpoints_t;

/* One that is being written. */
typedef struct terral_checkpoint terral_checkpoint_t;

/* One that is whole, to be read. */
typedef struct terral_restart terral_restart_t;

/* What a process has written; 40 bytes, to be gathered as they are. */
struct terral_part {
    struct terral_address address;
    uint64_t at;     /* where its first byte is, of the bytes of all processes */
    uint64_t length; /* bytes */
};

/* The checkpoints in a directory, which is made if it is missing. `keep` of them stay, at least
 * one. With a permanent directory older ones also stay until a newer one is safe there. */
terral_checkpoints_t *terral_checkpoints_open(terral_t *connection, const char *directory,
                                              size_t keep, mode_t mode);
void terral_checkpoints_close(terral_checkpoints_t *checkpoints);

/* Each object of what is begun from now on is had by two servers (2; 1: by one) before it is ended,
 * and read from the second one if the first is lost. All processes say the same, before they begin
 * or join, which fails with EOPNOTSUPP if no other server answers. Names stay where rank 0 began.
 * EINVAL: another number. */
int terral_checkpoints_copies(terral_checkpoints_t *checkpoints, size_t servers);

/* One process begins, and tells the others what terral_checkpoint_attempt gives, with which they
 * join. What earlier writers have begun here and not ended is removed. */
terral_checkpoint_t *terral_checkpoint_begin(terral_checkpoints_t *checkpoints, uint64_t step);
terral_checkpoint_t *terral_checkpoint_join(terral_checkpoints_t *checkpoints, uint64_t step,
                                            uint64_t attempt);
int terral_checkpoint_attempt(terral_checkpoint_t *checkpoint, uint64_t *attempt);

/* Writes bytes that are those from `at` on, of the bytes of all processes. EEXIST: this rank has
 * written there; ENOENT: another checkpoint was begun meanwhile. */
int terral_checkpoint_dump(terral_checkpoint_t *checkpoint, uint32_t rank, int64_t at,
                           const void *buffer, size_t length, struct terral_part *part);

/* The object for such bytes, to be written piece by piece; the caller makes the part. */
terral_object_t *terral_checkpoint_create(terral_checkpoint_t *checkpoint, uint32_t rank,
                                          int64_t at);

/* Ends it, and frees the handle, also when it fails. Who began does, with the parts of all, in
 * whatever order, once all have been written; they begin at 0 and leave no gap (else EINVAL). From
 * then on it is the latest, in the place of one of the same step. EPROTO: an object is not as long
 * as its part says; what was the latest is the latest then. */
int terral_checkpoint_end(terral_checkpoint_t *checkpoint, const struct terral_part *parts,
                          size_t count);

/* Frees a handle; those who joined do that. Removes what was written, and frees it. */
void terral_checkpoint_leave(terral_checkpoint_t *checkpoint);
int terral_checkpoint_abandon(terral_checkpoint_t *checkpoint);

/* The checkpoint of a step, or for -1 that of the greatest step that is whole. ENOENT: there is
 * none. EIO: it cannot be had now, as a machine that has a part of it does not answer: no reason to
 * begin anew. */
terral_restart_t *terral_restart_open(terral_checkpoints_t *checkpoints, int64_t step);
int terral_restart_step(terral_restart_t *restart, uint64_t *step);
int terral_restart_size(terral_restart_t *restart, uint64_t *size_bytes);

/* Reads from `at` on, of the bytes of all processes; fewer than asked for only at the end. */
ssize_t terral_restart_read(terral_restart_t *restart, void *buffer, size_t length, int64_t at);
void terral_restart_close(terral_restart_t *restart);

#ifdef __cplusplus
}
#endif

#endif
