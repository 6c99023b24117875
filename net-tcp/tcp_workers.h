/* SPDX-FileCopyrightText: the nccl-net-pvrdma authors
 * SPDX-License-Identifier: Apache-2.0 */
/*
 * Worker threads that copy between buffers and sockets, for links that one core cannot fill.
 *
 * A comm's own thread reads headers, places and completes messages. If a stream has a large piece
 * to send or to receive, the thread leaves the system calls to a worker and reads one word at each
 * poll until they are done. One pool serves the whole process. A stream belongs to one worker, so
 * its bytes stay in order; a worker serves any number of streams and waits for all of them at once.
 * Posting takes no lock that workers share: jobs go to a worker through a list that one atomic
 * exchange empties. Idle workers sleep in epoll_wait.
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

/* The owner may touch a job that is IDLE or DONE, the worker one that is QUEUED or WAITING. An
 * ENDING job is still in the worker's lists, but the worker moves no more of its bytes. */
enum tcp_job_state {
    TCP_JOB_IDLE,
    TCP_JOB_QUEUED,
    TCP_JOB_WAITING, /* for the socket */
    TCP_JOB_ENDING,  /* taken back: the worker moves no more bytes, but has not noticed yet */
    TCP_JOB_DONE
};

/* The bytes that one stream has to move. Owned by the stream. */
struct tcp_job {
    int state; /* enum tcp_job_state; atomic, DONE is stored last, by the worker */
    struct tcp_worker *worker;
    /* Held by the worker during a system call and while it updates the job, so that other threads
     * may inspect a busy job. */
    pthread_mutex_t lock;

    /* Set by the owner before tcp_job_post. */
    int fd;
    const struct pvn_sockio *io;
    struct pvn_seal *seal; /* for io */
    bool sends;
    size_t need; /* bytes after which the job is done; pieces beyond take bytes that arrive too */
    int npieces;
    struct iovec piece[TCP_JOB_PIECES]; /* used up by the worker */

    /* Set by the worker before DONE. */
    /* Bytes; may exceed need. Fewer after an error, at the end of the stream, or if epoll cannot
     * watch the socket. */
    size_t moved;
    int rc;         /* 0, or a negative errno: the stream's error, or -ECANCELED */
    bool eof;       /* receiving: the peer has closed its end */
    unsigned calls; /* system calls on the socket */
    /* set by tcp_job_revoke: nothing was moved after it; the stream cannot continue */
    bool revoked;

    /* The worker's. */
    struct tcp_job *next;
    bool watched; /* the socket is in the worker's epoll set */
};

/*
 * Reference-counted pool. The first get starts `n` workers (1 .. TCP_WORKERS_MAX), later ones share
 * them; the last put stops and joins them. 0, or a negative errno if none was started. Any thread.
 */
int tcp_workers_get(int n);
void tcp_workers_put(void);
/* Called in a forked child, which has none of the threads: forgets the parent's pool without
 * touching it. The child must call no other function here for objects of the parent. */
void tcp_workers_after_fork(void);

/* Creates a stream's job and assigns it to the worker with the fewest streams. NULL if memory is
 * short. Called between get and put. */
struct tcp_job *tcp_job_new(void);
/* Frees a job that no worker has and whose socket tcp_job_cancel has taken back. NULL is
 * allowed. */
void tcp_job_free(struct tcp_job *j);

/* Hands the job to its worker. The owner polls tcp_job_busy until the job is done. */
void tcp_job_post(struct tcp_job *j);
static inline bool tcp_job_busy(struct tcp_job *j)
{
    int s = __atomic_load_n(&j->state, __ATOMIC_ACQUIRE);
    return s == TCP_JOB_QUEUED || s == TCP_JOB_WAITING;
}
/* Takes a job back before its stream's socket is closed. When this returns, no worker touches the
 * socket or the buffers any more. If the job is not done, this shuts the socket down in both
 * directions, which wakes the worker, and waits for the worker. */
void tcp_job_cancel(struct tcp_job *j);
/* Takes a job back if it still has to move some of these bytes. When this returns, the worker
 * touches none of them any more. Waits for a system call in progress, which never waits for the
 * peer. Any thread, until tcp_job_free. */
void tcp_job_revoke(struct tcp_job *j, const void *addr, size_t len);

#endif
