/* SPDX-FileCopyrightText: the nccl-net-pvrdma authors
 * SPDX-License-Identifier: Apache-2.0 */
/* Shared by the files of a comm: comm.c (data calls), comm_setup.c (listen, connect, accept,
 * close), and those named below, each with its functions. */
#ifndef PVN_COMM_COMM_PRIV_H
#define PVN_COMM_COMM_PRIV_H

#include <pthread.h>
#include <stdatomic.h>

#include "comm/comm.h"
#include "comm/comm_help.h"
#include "engine/engine.h"
#include "connect/handshake.h"
#include "connect/link_keep.h"
#include "connect/listener.h"
#include "stats/stats.h"

#define COMM_MAGIC UINT32_C(0x50564e43)

struct pvn_comm_mr {
    struct pvn_mr mr;
    struct pvn_comm *comm; /* also distinguishes a handle from other pointers */
    struct pvn_comm_mr *next, *prev;
    struct pvn_conn *on; /* the connection whose lanes have it registered; NULL: none */
};

/* Calls between two looks at the control connection: calls of test, and others that found no
 * room. Fewer if the comm is called rarely, see attend_shift. */
enum { ATTEND_EVERY = 64, ATTEND_SHIFT_MAX = 6 };

/* Time between two looks for stalls, and between two publications. */
#define COMM_LOOK_NS (PVN_NS_PER_S / 10)

#define NO_EPOCH UINT32_MAX

/* The parts of a comm, each with the file that keeps it. Only the thread of the data calls changes
 * them, unless a comment says otherwise. */

/* comm_mr.c. regMr comes from other threads than the data calls, so the fields that it reads change
 * under the lock: all of these, the lanes' registrations, and the comm's engine and connection. */
struct comm_memory {
    struct pvn_comm_mr *mrs;
    pthread_mutex_t lock;
    /* The connection whose lanes take new registrations. NULL: a set-up or failover makes it. */
    struct pvn_conn *taker;
    bool
        device_failed; /* in a failover: the lost lanes' device, or it may have: its error is ENODEV or EIO */
    bool said_copied;
};

/* comm_stall.c */
struct comm_stall {
    uint64_t moved_ns;    /* when bytes last moved, or no request was open, or nobody called */
    uint64_t moved_bytes; /* comm_bytes_moved() then */
    uint64_t look_ns;     /* when the next look is due */
    bool reported;
    uint64_t peer_ready_ns; /* when the peer said that it takes messages; 0: it has not */
};

/* comm_stats.c */
struct comm_numbers {
    struct pvn_live *live; /* its counters in the row of the statistics; NULL: it has no row */
    struct pvn_stat_counts counts;   /* as published last */
    struct pvn_stat_counts replaced; /* sums of earlier lanes, up to their last replacement */
    uint64_t lanes_ns;               /* when the lanes' counters are read next */
};

/* comm_error.c */
struct comm_end {
    atomic_bool failed; /* err is complete and does not change any more */
    bool refused;       /* the last data call failed by itself, for the reason in call_err */
    struct pvn_err err;
    struct pvn_err call_err;
    uint64_t grace_ns; /* engine failed: until when the peer's reason is waited for; 1: it is not */
};

/* The lists that have the comm, each protected by the lock of its file. */
struct comm_lists {
    struct pvn_comm *of_live;   /* comm_live.c */
    struct pvn_comm *of_driven; /* comm_attend.c */
    bool driven;                /* calls of another comm of its thread take its steps, too */
    bool in_step;               /* a thread is taking its steps beside those of another comm */
    bool leaves;                /* no thread takes its steps any more */
};

struct pvn_comm {
    uint32_t magic;
    unsigned epoch; /* of the process that the comm belongs to, see fork.h */
    /* `sends` of a sender, or `receives` of a receiver, equals `epoch` while the comm is up,
     * healthy, not profiled and without help. Otherwise both are NO_EPOCH, and data calls check the
     * comm's state first. */
    unsigned sends, receives;
    unsigned tests;               /* equals `epoch` unless the comm has help */
    struct pvn_engine *engine;    /* NULL until the conn is UP */
    int attend_in;                /* calls until the next comm_attend, see ATTEND_EVERY */
    unsigned attend_shift;        /* ATTEND_EVERY >> attend_shift calls are between two of them */
    struct pvn_profile *profile;  /* NULL: no profiler is loaded */
    const struct pvn_device *dev; /* chosen by NCCL; the link may use another one by now */
    struct pvn_link link;         /* its conn changes under mem.lock, because regMr reads it */
    /* Set before the first data call. NULL: only the caller uses the comm. */
    struct comm_help *help;
    /* The thread of the data calls, as comm_thread.c numbers threads; 0: not known. Every thread
     * may read this. A thread that finds its own number here may read more of the comm without a
     * lock. */
    _Atomic uint64_t thread;
    uint64_t attended_ns; /* when the control connection was last polled */
    struct comm_memory mem;
    struct comm_stall stall;
    struct comm_numbers stats;
    struct comm_end end;
    struct comm_lists lists;
};

/* Lets data calls skip the check of the comm's state, but only while the link is open, and without
 * help or a profiler. */
static inline void comm_set_calls(struct pvn_comm *c)
{
    bool checked = !pvn_link_is_open(&c->link) || c->profile || c->help;
    unsigned epoch = checked ? NO_EPOCH : c->epoch;

    c->sends = c->link.sender ? epoch : NO_EPOCH;
    c->receives = c->link.sender ? NO_EPOCH : epoch;
}

/* pvn_link_note, then comm_set_calls for the new state. */
static inline void comm_note(struct pvn_comm *c, enum pvn_link_event event)
{
    pvn_link_note(&c->link, event);
    comm_set_calls(c);
}

/* A count that changes when any data move. */
static inline uint64_t comm_bytes_moved(const struct pvn_comm *c)
{
    const struct pvn_engine_stats *s = pvn_engine_get_stats(c->engine);

    return s->bytes + s->chunks;
}

/* comm_error.c */
/* Checks that data calls may be made. 0, or the error that pvn_comm_err() describes. */
int comm_usable(struct pvn_comm *c, const char *call);
/* Like comm_usable, for calls that may come from another thread: the reason is in *err. */
int comm_usable_elsewhere(struct pvn_comm *c, const char *call, struct pvn_err *err);
/* An error of this data call alone: logs it and returns code. */
int comm_refuse(struct pvn_comm *c, int code, enum pvn_fault fault, const char *fmt, ...)
    PVN_PRINTF(4, 5);
int comm_refuse_elsewhere(const struct pvn_comm *c, struct pvn_err *err, int code,
                          enum pvn_fault fault, const char *fmt, ...) PVN_PRINTF(5, 6);
/* Latches the error, logs it and reports it to the peer. Returns the code. */
int comm_fail(struct pvn_comm *c, const struct pvn_err *err);
/* Like comm_fail, but without a warning, because there is no fault. */
int comm_end(struct pvn_comm *c, const struct pvn_err *err);

/* comm_setup.c. Takes a step of the set-up. 0: the engine runs; -EAGAIN; or the comm has failed. */
int comm_come_up(struct pvn_comm *c);

/* comm_stats.c. Puts the comm's numbers into its row of the statistics. The engine runs. */
void comm_publish(struct pvn_comm *c, uint64_t now);
/* Like comm_publish, in a failover that began at since_ns; text: what it waits for. */
void comm_publish_failover(struct pvn_comm *c, uint64_t now, uint64_t since_ns, const char *text);
/* Like comm_publish, at the comm's end, with the lanes' last numbers. */
void comm_publish_last(struct pvn_comm *c);
/* Publishes that the comm has gone on with other lanes. */
void comm_publish_replaced(struct pvn_comm *c, bool failback);

/* comm_stall.c. Looks for requests that do not move. Called about ten times a second while the
 * engine runs; the engine may be paused, or have failed, afterwards. */
void comm_look_for_stalls(struct pvn_comm *c, uint64_t now);
/* Answers a peer that has sent an ASK. */
void comm_answer_peer(struct pvn_comm *c);

/* comm_mr.c. Registers all memory that this connection's lanes do not have yet; other lanes lose it
 * first. If they take all of it, new registrations are theirs from now on. The caller holds
 * mem.lock. */
int comm_mr_attach_all(struct pvn_comm *c, struct pvn_conn *conn, struct pvn_err *err);
/* comm_mr_detach.c. detach deregisters one registration from all lanes that have it, some from the
 * first `lanes` lanes of conn. all deregisters all memory from conn's lanes, next from the lanes
 * that were to take over, which get no more. The caller holds mem.lock, except for next. */
void comm_mr_detach(struct pvn_comm_mr *m);
void comm_mr_detach_some(struct pvn_comm_mr *m, struct pvn_conn *conn, int lanes);
void comm_mr_detach_all(struct pvn_comm *c, const struct pvn_conn *conn);
void comm_mr_detach_next(struct pvn_comm *c);
/* When it returns, no thread of the lanes touches memory any more that only this registration had.
 * The registration is not in the list any more. The caller holds mem.lock. */
void comm_mr_revoke(const struct pvn_comm *c, const struct pvn_comm_mr *m);
void comm_mr_free_all(struct pvn_comm *c);

/* comm_workers.c. show: a comm has joined the list of comm_live.c, so pvn-answer runs. join: a comm
 * has failover; true if both threads run, until it leaves. finish: waits, 1.5 s at most, for the
 * threads to end if no comm needs them. lingering: waits for the answers to peers of closed comms,
 * too. unmapping: the library is already being unmapped. */
void comm_workers_show(void);
bool comm_workers_join(void);
void comm_workers_leave(void);
void comm_workers_finish(bool lingering, bool unmapping);
void comm_workers_after_fork(void);
/* Refuses a memory handle that does not belong to this comm. */
int comm_mr_refuse(struct pvn_comm *c, const void *handle);

/* comm_failover.c. begin: a lane is lost, or the peer says so; 0 or the comm's error. step: takes a
 * step of the failover; the comm may have failed afterwards. */
int comm_failover_begin(struct pvn_comm *c, const struct pvn_err *why);
void comm_failover_step(struct pvn_comm *c);
/* In a failover, before a step that the caller does not take: the time since the last step does not
 * count. */
void comm_failover_uncalled(struct pvn_comm *c, uint64_t now);
/* For a sender whose peer has closed its end: true if the peer has every message. The comm then
 * ends without a fault once its lanes are fenced and its requests are done. */
bool comm_failover_has_all(struct pvn_comm *c);
/* Switches to this connection, which is up. NULL, at the acceptor: to one that is still coming
 * up. */
int comm_failover_switch(struct pvn_comm *c, struct pvn_conn *next);

/* comm_live.c. step: on the plugin's thread. any: true if a comm needs that. join: the comm is
 * up. */
void comm_live_step(void);
bool comm_live_any(void);
void comm_live_join(struct pvn_comm *c);
void comm_live_leave(struct pvn_comm *c);
void comm_live_after_fork(void);

/* comm_ctrl.c, for a control connection that is lost while the lanes work. may_be_away: true if the
 * lanes can go on without it after this error. wait: looks for a peer that has ended unnoticed;
 * idle: the caller has come back after a pause; 0, or a negative errno with link.ctrl_err if the
 * comm has to be connected again. */
bool comm_ctrl_may_be_away(const struct pvn_comm *c, int code);
void comm_ctrl_lost(struct pvn_comm *c);
int comm_ctrl_wait(struct pvn_comm *c, bool idle);

/* comm_watch.c. Polls the control connection, and looks for a lost peer and for a stall. While
 * nothing happens, this costs a reading of the clock and a few loads. */
void comm_watch(struct pvn_comm *c, uint64_t now);
/* Checks that the peer's machine still answers on the control connection; with each look for
 * stalls. */
void comm_look_at_path(struct pvn_comm *c);
/* Handles frames, errors and the end of the control connection. */
void comm_look_at_peer(struct pvn_comm *c);
/* Like comm_look_at_peer, whatever the poller has reported. */
void comm_listen_to_peer(struct pvn_comm *c);
/* Within close: true if lanes were lost, and the peer has neither closed its end nor ended. The
 * loss may not have been noticed, because nobody has called. */
bool comm_has_lost_lanes(struct pvn_comm *c);
/* Fails the comm with the error of the control connection, and waits for no further reason. */
void comm_fail_by_peer(struct pvn_comm *c);
/* The engine has failed. 0: call again, because the peer's reason may still come; else the comm has
 * failed. */
int comm_engine_failed(struct pvn_comm *c);

/* comm_thread.c. note: the calling thread makes the comm's data calls. is_here: true if it does, as
 * far as is known. */
void comm_thread_note(struct pvn_comm *c);
bool comm_thread_is_here(const struct pvn_comm *c);

/* comm_attend.c. The work that a data call does once in up to ATTEND_EVERY calls. beside: the steps of a
 * comm whose caller does not call it; if the comm has help, the thread has taken it. */
void comm_attend(struct pvn_comm *c);
void comm_attend_beside(struct pvn_comm *c, uint64_t now);
/* join: the comm is up, and is driven from now on. stop: no other thread takes its steps any more.
 * leave: it is closed. after_fork: in a forked child. */
void comm_attend_join(struct pvn_comm *c);
void comm_attend_stop(struct pvn_comm *c);
void comm_attend_leave(struct pvn_comm *c);
void comm_attend_after_fork(void);
/* Returns how many messages the comm with this id has received, for the HELLO to a peer that
 * connects again; 0: not known. Any thread, with a listener's lock held or not. Works after a close in
 * a failover, too, as long as its attempt LINGERS (link_back.h). */
uint64_t comm_received(uint64_t id);

#endif
