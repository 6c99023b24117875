/* SPDX-FileCopyrightText: the nccl-net-pvrdma authors
 * SPDX-License-Identifier: Apache-2.0 */
/*
 * Worker threads that copy between buffers and sockets, for links that one core cannot fill.
 *
 * A comm's own thread reads headers, places and completes messages; when a stream has a large piece
 * to send or to receive it leaves the system calls to a worker and looks at one word at each poll
 * until they are done. One pool serves the whole process. A stream belongs to one worker, so its
 * bytes stay in order; a worker serves any number of streams and waits for all of them at once. No
 * lock is taken per message: jobs go to a worker by a list that one exchange empties, and idle
 * workers sleep in epoll_wait.
 */
#ifndef PVN_NET_TCP_WORKERS_H
#define PVN_NET_TCP_WORKERS_H

#include <pthread.h>
#include <stdbool.h>
#include <stddef.h>
#include <sys/uio.h>

#include "seal/sockio.h"

enum {
    TCP_WORKERS_MAX = 64,
    TCP_JOB_PIECES = 64 /* of one job; two for each chunk of a run */
};

struct tcp_worker;

/* Who may touch a job: its owner (IDLE, DONE), or the worker (QUEUED, WAITING). What the worker of an ENDING one has moved
 * stays as it is; it is still in the worker's lists. */
enum tcp_job_state {
    TCP_JOB_IDLE,
    TCP_JOB_QUEUED,
    TCP_JOB_WAITING, /* for the socket */
    TCP_JOB_ENDING,  /* taken back: the worker moves nothing more, and has not noticed yet */
    TCP_JOB_DONE
};

/* The bytes that one stream has to move. Owned by the stream. */
struct tcp_job {
    int state; /* enum tcp_job_state; atomic, DONE is stored last, by the worker */
    struct tcp_worker *worker;
    /* The worker has it during a system call and what that changes here, so others may look at a job that is busy. */
    pthread_mutex_t lock;

    /* Set by the owner before tcp_job_post. */
    int fd;
    const struct pvn_sockio *io;
    struct pvn_seal *seal; /* for io */
    bool sends;
    size_t need; /* bytes after which the job is done; pieces behind them take what comes along */
    int npieces;
    struct iovec piece[TCP_JOB_PIECES]; /* used up by the worker */

    /* Set by the worker before DONE. */
    size_t moved; /* bytes, may exceed need; fewer with an error, at the end, or without a watch */
    int rc;       /* 0, or a negative errno: the stream's error, or -ECANCELED */
    bool eof;     /* receiving: the peer has closed its end */
    unsigned calls; /* system calls on the socket */
    bool revoked; /* by tcp_job_revoke: nothing was moved after that, and the stream cannot go on */

    /* The worker's. */
    struct tcp_job *next;
    bool watched; /* the socket is in the worker's epoll set */
};

/*
 * Counted: the first caller starts `n` workers (1 .. TCP_WORKERS_MAX), others use those that are
 * there; the last put ends and joins them. 0 or a negative errno: none was started. Any thread.
 */
int tcp_workers_get(int n);
void tcp_workers_put(void);
/* In a forked child, which has none of the threads: forgets the parent's pool without touching it. Nothing
 * else here may be called for what the parent has made. */
void tcp_workers_after_fork(void);

/* A job for a stream, of the worker that has the fewest streams. NULL: no memory. Between get and
 * put. */
struct tcp_job *tcp_job_new(void);
/* The job is not with the worker, and its socket was taken back by tcp_job_cancel. NULL is allowed. */
void tcp_job_free(struct tcp_job *j);

/* Hands the job to its worker. The owner looks at tcp_job_busy until the job is done. */
void tcp_job_post(struct tcp_job *j);
static inline bool tcp_job_busy(struct tcp_job *j)
{
    int s = __atomic_load_n(&j->state, __ATOMIC_ACQUIRE);
    return s == TCP_JOB_QUEUED || s == TCP_JOB_WAITING;
}
/* Takes a job back, for a stream that ends, before its socket is closed: when this returns no worker touches its socket or
 * buffers any more. A job that is not done has its socket shut down in both directions, which wakes
 * its worker; the caller waits for that. */
void tcp_job_cancel(struct tcp_job *j);
/* From any thread, until tcp_job_free: takes a job back that has still to move some of these bytes. When this returns the worker
 * touches none of them any more. It waits for a system call that is in progress, which never waits for the peer. */
void tcp_job_revoke(struct tcp_job *j, const void *addr, size_t len);

#endif
