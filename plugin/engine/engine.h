/* SPDX-FileCopyrightText: the nccl-net-pvrdma authors
 * SPDX-License-Identifier: Apache-2.0 */
/*
 * The message engine: the messages of one comm, over lanes of any kind.
 *
 * The engine consumes events and emits posts (lane.h). It does no I/O, reads only the clock that it is
 * given, and allocates only at creation, at a failover and for unexpected messages. So the tests can
 * run it on a simulated lane with a hundred thousand seeds.
 *
 * Two kinds of comm:
 * - matched (no lane needs clear-to-send, e.g. TCP): the sender numbers its messages and sends at
 *   once. The receiver takes messages in this order and gives each to the oldest posted buffer with its
 *   tag. While no receive is posted, the payload stays in the lane (the kernel's socket buffer). If
 *   receives are posted but none has the tag, the engine queues the message as unexpected, so that the
 *   messages behind it can be received.
 * - clear-to-send (a lane that writes to remote addresses, e.g. RDMA, or any lane that carries the
 *   entries): the receiver announces each grouped receive as a slot. A send waits until the oldest slot
 *   with free buffers has a buffer with its tag. So if ranks share a comm, a rank that is ahead waits
 *   for the others.
 *
 * Threads: one comm is used by one thread at a time. Errors are latched: the first one is kept in
 * engine->err and returned by every later call.
 */
#ifndef PVN_ENGINE_ENGINE_H
#define PVN_ENGINE_ENGINE_H

#include <stdbool.h>

#include "base/live.h"
#include "engine/lane.h"

struct pvn_engine;
struct pvn_req;

struct pvn_engine_cfg {
    bool sender;
    int nlanes;
    struct pvn_lane *lanes[PVN_MAX_LANES]; /* borrowed; bound and verified */
    size_t chunk;                          /* preferred chunk in bytes, > 0 */
    size_t unexpected_max;                 /* bytes of unexpected messages before the comm fails */
    uint64_t (*now)(void *ctx);            /* ns, monotonic */
    void *now_ctx;
    void *owner; /* the caller's pointer, which pvn_req_owner returns */
    /* True: the loss of a lane pauses the engine, and the caller provides new lanes (see Failover below).
     * False: the loss of a lane fails the engine. */
    bool outlives_lanes;
    /* For a sender with outlives_lanes: a message of up to PVN_KEEP_MAX bytes is done when a lane without
     * clear-to-send has taken it (PVN_EV_TAKEN). The engine keeps a copy until the message is delivered,
     * so the owner has to call pvn_engine_progress while pvn_engine_kept is not 0. */
    bool keeps;
};

enum { PVN_KEEP_MAX = 4096 };

/* Counters since creation. Only the comm's thread may read them; other threads call pvn_engine_count. */
struct pvn_engine_stats {
    uint64_t msgs, bytes; /* completed sends or grouped receives */
    uint64_t flushes;     /* completed flushes */
    uint64_t chunks;      /* posted (sender) or arrived (receiver) */
    uint64_t stale, dups; /* events dropped: unknown or old id; a chunk that was already there */
    uint64_t unexpected;  /* messages that arrived before a buffer with their tag was posted */
    uint64_t again;       /* posts that a lane refused because its queue was full */
    uint64_t empty_polls; /* polls of a lane that returned no event */
    uint64_t resumes;     /* times that the lanes were replaced */
    uint64_t replayed;    /* messages sent again on other lanes */
    uint64_t kept;        /* messages completed early because a copy was kept, see `keeps` */
    uint64_t kept_again;  /* kept messages sent again from their copy; counted in `replayed`, too */
};

/* Returns NULL with errno ENOMEM or EINVAL on failure. The engine does not own the lanes. */
struct pvn_engine *pvn_engine_new(const struct pvn_engine_cfg *cfg);
void pvn_engine_free(struct pvn_engine *e);

/* isend, irecv and test are inline functions in engine_calls.h. */

/* Flushes the buffers of completed receives. Returns 0 and *req NULL if the data are visible already.
 * -EBUSY: PVN_MAX_REQS flushes are in flight. */
int pvn_engine_iflush(struct pvn_engine *e, int n, void *const *data, const size_t *sizes,
                      const struct pvn_mr *const *mrs, struct pvn_req **req);
/* Makes progress without a request: polls the lanes and posts what they had no room for before. */
int pvn_engine_progress(struct pvn_engine *e);

/* Fails the engine for a reason outside of it (the peer's report, loss of the control connection). The
 * first error is kept. */
void pvn_engine_fail(struct pvn_engine *e, const struct pvn_err *err);
/* Reports that a lane has died with `code`. Returns the engine's error, or 0 if the engine is paused
 * instead: what the lane did not deliver then goes over other lanes later. */
int pvn_engine_fail_lane(struct pvn_engine *e, struct pvn_lane *l, int code);
/* NULL while healthy. */
const struct pvn_err *pvn_engine_err(const struct pvn_engine *e);
const struct pvn_engine_stats *pvn_engine_get_stats(const struct pvn_engine *e);
/* Requests opened and completed so far. May be called from any thread. */
void pvn_engine_count(const struct pvn_engine *e, struct pvn_live *out);
/* Sender: number of the next message. Receiver: number of the next slot. */
uint64_t pvn_engine_next(const struct pvn_engine *e);
/* Number of requests that have not completed. */
int pvn_engine_pending(const struct pvn_engine *e);
/* Sender: number of completed messages of which a copy is kept because the receiver may not have them. */
int pvn_engine_kept(const struct pvn_engine *e);
/* Sender: messages that the receiver has. Receiver: completed receives. */
uint64_t pvn_engine_delivered(const struct pvn_engine *e);
/* Sender: messages that the receiver may not have. Receiver: requests that have not completed. */
int pvn_engine_undelivered(const struct pvn_engine *e);
/* True if the peer can write only to registered receive buffers. */
bool pvn_engine_needs_registration(const struct pvn_engine *e);
/* Sender: true if a message that has not completed lies in this registration. */
bool pvn_engine_sends(const struct pvn_engine *e, const struct pvn_mr *mr);
/* Sender: true if, in addition, a lane may still read the message. */
bool pvn_engine_reads(const struct pvn_engine *e, const struct pvn_mr *mr);
/* The owner of the request's engine. Works for completed and free requests, too. A pointer that is not
 * a request is not detected. */
static inline void *pvn_req_owner(const struct pvn_req *req)
{
    return *(void *const *)req;
}
/* For stall reports: describes the oldest open request and the end that has to act next, without a full
 * stop, e.g. "waiting for the adapter to finish a flush". Returns the request's age in ns. Returns 0 and
 * an empty text if no request is open. */
uint64_t pvn_engine_oldest(const struct pvn_engine *e, char *text, size_t cap);

/*
 * Failover: all lanes of a comm are replaced by new ones, perhaps of another kind.
 *
 * The comm pauses at both ends. Each end fences its own lanes, so that nothing more is written through
 * them, and then handles the events that they still have. The receiver reports which messages it has.
 * The sender completes those and sends the others again, from their first byte, over the new lanes. So
 * a new lane writes a message only when no old lane can write it any more, and each message completes
 * once.
 *
 *     pvn_engine_pause          both ends (the loss of a lane does it by itself)
 *     fence of every lane; pvn_engine_drain; receiver: pvn_engine_flushed
 *     receiver: pvn_engine_make_report ------------>  sender: pvn_engine_resume_sender
 *     pvn_engine_resume_receiver  <------------
 *
 * While the engine is paused, isend and irecv return no request, and test completes nothing but what
 * drain has found. pvn_engine_flushed completes the open flushes: they need nothing of the peer, which
 * may have nothing more to do on this comm.
 */

enum { PVN_REPORT_WORDS = 2 * PVN_MAX_SENDS / 64, PVN_ANSWER_WORDS = PVN_MAX_SENDS / 64 };

/* The messages that the receiver has. Both ends number messages and slots alike. */
struct pvn_engine_report {
    uint32_t epoch; /* number of times that the receiver has resumed */
    bool by_slot;   /* true: the lost lanes used clear-to-send slots; false: message numbers */
    int n;          /* number of incomplete receives in `open`, oldest first */
    struct {
        uint64_t slot;
        uint8_t buffers; /* 1 .. PVN_MAX_RECVS */
        uint8_t done;    /* a bit for each buffer that has its message; never all of them */
    } open[PVN_MAX_REQS];
    uint64_t next; /* by slot: the next slot; by number: the first message not matched yet */
    /* Message numbers: bit i is set if the receiver has message next - PVN_MAX_SENDS + i. Messages from
     * `next` on can be there because they arrived before an earlier failover. */
    uint64_t have[PVN_REPORT_WORDS];
};

/* The messages that the sender will not send again: bit i of `done` stands for message first + i. The
 * receiver needs this if the old lanes used slots and the new ones use message numbers. */
struct pvn_engine_answer {
    uint64_t first; /* oldest message that is sent again, or `next` if there is none */
    uint64_t next;  /* the next new message; at most first + PVN_MAX_SENDS */
    uint64_t done[PVN_ANSWER_WORDS];
};

/* True if the engine can survive the loss of a lane: cfg.outlives_lanes is set, and every lane has
 * PVN_LANE_SENT_IS_DELIVERED. */
bool pvn_engine_may_pause(const struct pvn_engine *e);
bool pvn_engine_paused(const struct pvn_engine *e);
/* The reason of the pause, e.g. the error of the lost lane. Valid while paused. */
const struct pvn_err *pvn_engine_pause_reason(const struct pvn_engine *e);
/* Pauses an engine that outlives its lanes. The first reason is kept. */
void pvn_engine_pause(struct pvn_engine *e, const struct pvn_err *why);
/* Replaces the reason of a paused engine. */
void pvn_engine_pause_because(struct pvn_engine *e, const struct pvn_err *why);
/* Handles the events that the fenced lanes still have. 0 or the engine's error. */
int pvn_engine_drain(struct pvn_engine *e);
/* Receiver, after pvn_engine_drain: all that the old lanes have written into GPU memory is visible now.
 * Completes the open flushes; until the engine resumes, iflush returns no request. */
void pvn_engine_flushed(struct pvn_engine *e);
/* Receiver: the number of open flushes. */
int pvn_engine_flushes(const struct pvn_engine *e);
/* Receiver: a lower bound of the number of messages received whole. May be called from any thread. */
uint64_t pvn_engine_received(const struct pvn_engine *e);
/* Sender, paused: the receiver reports that it has `received` messages. If that is every message sent
 * so far, all open sends complete. */
void pvn_engine_acknowledge(struct pvn_engine *e, uint64_t received);
/* Receiver, after pvn_engine_drain. */
void pvn_engine_make_report(const struct pvn_engine *e, struct pvn_engine_report *r);
/* Receiver: true if it may go on with lanes that need clear-to-send. False while the engine holds
 * complete unexpected messages, whose buffers have not been posted. */
bool pvn_engine_may_use_slots(const struct pvn_engine *e);
/*
 * Resumes with these lanes, which are bound and verified. The engine borrows them and no longer uses the
 * old ones. Returns 0 or the engine's error. The sender fails if the report is impossible, or if a
 * message that it has completed is missing at the receiver. The receiver fails if the answer is
 * impossible or memory is short.
 */
int pvn_engine_resume_sender(struct pvn_engine *e, struct pvn_lane *const *lanes, int nlanes,
                             const struct pvn_engine_report *r, struct pvn_engine_answer *a);
int pvn_engine_resume_receiver(struct pvn_engine *e, struct pvn_lane *const *lanes, int nlanes,
                               const struct pvn_engine_answer *a);

#endif
