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

#ifdef __cplusplus
}
#endif

#endif
