/* SPDX-FileCopyrightText: the nccl-net-pvrdma authors
 * SPDX-License-Identifier: Apache-2.0 */
/*
 * The message engine: one comm's messages, whatever carries them.
 *
 * It consumes events and emits posts (lane.h); it does no I/O, reads no clock but the one it is
 * given, and allocates only at creation, at a failover and for unexpected messages, so the tests
 * run it against a simulated lane by the hundred thousand seeds.
 *
 * Two kinds of comm:
 * - matched (no lane needs clear-to-send, e.g. TCP): the sender numbers its messages and sends at
 * once; the receiver gives message k, in that order, to the oldest posted buffer with its tag. A
 * payload that has no buffer yet stays in the lane (the kernel's socket buffer). One that fits none
 * of the posted tags is kept aside so that those behind it can be received.
 * - clear-to-send (a lane that writes to remote addresses, e.g. RDMA, or any that carries the
 * entries): the receiver publishes each grouped receive as a slot; a send waits until the oldest slot
 * with free buffers has its tag. So a rank that shares a comm with others, and is ahead of them, waits.
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
    size_t unexpected_max;      /* bytes of out-of-order payload kept aside before the comm fails */
    uint64_t (*now)(void *ctx); /* ns, monotonic */
    void *now_ctx;
    void *owner; /* the caller's own, see pvn_req_owner */
    /* The loss of a lane pauses the engine, and the caller brings new lanes (see Failover below);
     * false: it is the engine's failure. */
    bool outlives_lanes;
    /* Sender that outlives its lanes: a message of PVN_KEEP_MAX bytes at most is done when a lane without
     * clear-to-send has taken it (PVN_EV_TAKEN). A copy is kept until it is delivered, so the owner has to
     * move the engine on while pvn_engine_kept is not 0. */
    bool keeps;
};

enum { PVN_KEEP_MAX = 4096 };

/* Counters since creation; read by the thread of the comm. */
struct pvn_engine_stats {
    uint64_t msgs, bytes; /* completed */
    uint64_t chunks;      /* posted (sender) or arrived (receiver) */
    uint64_t stale, dups; /* events dropped: unknown or old id; a chunk that was already there */
    uint64_t unexpected;  /* messages that arrived before a buffer with their tag was posted */
    uint64_t again;       /* posts that a lane refused for lack of room */
    uint64_t empty_polls; /* polls of a lane that gave no event */
    uint64_t resumes;     /* times that the lanes were replaced */
    uint64_t replayed;    /* messages sent again on other lanes */
    uint64_t kept;        /* messages that were done when a lane had taken them, see keeps */
    uint64_t kept_again;  /* of them, sent again from their copy; counted in replayed, too */
};

/* NULL with errno ENOMEM or EINVAL. The engine does not own the lanes. */
struct pvn_engine *pvn_engine_new(const struct pvn_engine_cfg *cfg);
void pvn_engine_free(struct pvn_engine *e);

/* The calls for messages are inline functions of engine_calls.h. */

/* Flushes buffers of completed receives. *req NULL with 0: nothing has to be waited for. -EBUSY:
 * PVN_MAX_REQS flushes are in flight. */
int pvn_engine_iflush(struct pvn_engine *e, int n, void *const *data, const size_t *sizes,
                      const struct pvn_mr *const *mrs, struct pvn_req **req);
/* Moves the comm along without a request: posts what was blocked, takes events. */
int pvn_engine_progress(struct pvn_engine *e);

/* The comm's end by somebody else's decision (peer's report,
 * control stream lost). First one wins. */
void pvn_engine_fail(struct pvn_engine *e, const struct pvn_err *err);
/* A lane has died, by `code`. The engine's error; 0: it is paused, and what the lane was to take is
 * posted to other lanes later. */
int pvn_engine_fail_lane(struct pvn_engine *e, struct pvn_lane *l, int code);
/* NULL while healthy. */
const struct pvn_err *pvn_engine_err(const struct pvn_engine *e);
const struct pvn_engine_stats *pvn_engine_get_stats(const struct pvn_engine *e);
/* From any thread: what has been opened and completed by now. */
void pvn_engine_count(const struct pvn_engine *e, struct pvn_live *out);
/* Number of the next message of a sender, or slot of a receiver. */
uint64_t pvn_engine_next(const struct pvn_engine *e);
/* Requests not completed yet. */
int pvn_engine_pending(const struct pvn_engine *e);
/* Sender: messages that the receiver may not have, done or not tested yet, of which a copy is kept. */
int pvn_engine_kept(const struct pvn_engine *e);
/* Sender: messages that the receiver has, and those that were sent and it may not have. Receiver: completed requests,
 * and the others. */
uint64_t pvn_engine_delivered(const struct pvn_engine *e);
int pvn_engine_undelivered(const struct pvn_engine *e);
/* True if the peer's writes reach nothing but what the receives have registered. */
bool pvn_engine_needs_registration(const struct pvn_engine *e);
/* Sender: true if a message that is not completed lies in this registration. */
bool pvn_engine_sends(const struct pvn_engine *e, const struct pvn_mr *mr);
/* True if a lane may still read it, too. */
bool pvn_engine_reads(const struct pvn_engine *e, const struct pvn_mr *mr);
/* The owner of the engine of a request, done and free ones included: it begins with that. A pointer
 * that is no request is not detected. */
static inline void *pvn_req_owner(const struct pvn_req *req)
{
    return *(void *const *)req;
}
/* The end that has to act next on the oldest open request, for stall reports: a sentence without a
 * full stop, e.g. "waiting for the peer's receive". age_ns: how long it has been open; 0 and an
 * empty text when idle.
 */
uint64_t pvn_engine_oldest(const struct pvn_engine *e, char *text, size_t cap);

/*
 * Failover: all lanes of a comm are replaced by new ones, perhaps of another kind.
 *
 * A comm pauses at both ends, each fences its own lanes, so that nothing more is written through
 * them, and takes what they still report. The receiver then says which messages it has; the sender
 * completes those and sends the others again, from their first byte, over the new lanes. So a
 * message is written by a new lane only after no old lane can write it, and completes once.
 *
 *     pvn_engine_pause          both ends (the loss of a lane does it by itself)
 *     fence of every lane; pvn_engine_drain
 *     receiver: pvn_engine_make_report ------------>  sender: pvn_engine_resume_sender
 *     pvn_engine_resume_receiver  <------------
 *
 * While paused, isend and irecv give no request, and test completes nothing. Flushes end with the
 * pause: the caller has made visible what the old lanes have written into GPU memory.
 */

enum { PVN_REPORT_WORDS = 2 * PVN_MAX_SENDS / 64, PVN_ANSWER_WORDS = PVN_MAX_SENDS / 64 };

/* The messages that the receiver has. Both ends count messages and slots alike, so numbers mean the same. */
struct pvn_engine_report {
    uint32_t epoch; /* times that the receiver has resumed */
    bool by_slot;   /* how the lost lanes counted: clear-to-send slots, else messages */
    int n;          /* receives without all of their messages, oldest first */
    struct {
        uint64_t slot;
        uint8_t buffers; /* 1 .. PVN_MAX_RECVS */
        uint8_t done;    /* a bit for each buffer that has its message; never all of them */
    } open[PVN_MAX_REQS];
    uint64_t next; /* slots: the number of the next one; messages: first that is not known yet */
    /* messages: bit i for message next - PVN_MAX_SENDS + i; those behind next were there before an
     * earlier failover */
    uint64_t have[PVN_REPORT_WORDS];
};

/* The messages that the sender will not send again, for a receiver that has counted slots and will
 * count messages: bit i of `done` for message first + i. */
struct pvn_engine_answer {
    uint64_t first; /* oldest message that is sent again, or the next new one */
    uint64_t next;  /* the next new one; at most PVN_MAX_SENDS more than first */
    uint64_t done[PVN_ANSWER_WORDS];
};

/* True if the loss of a lane can be survived: the owner has requested that, and every lane reports a
 * send only when it is delivered. */
bool pvn_engine_may_pause(const struct pvn_engine *e);
bool pvn_engine_paused(const struct pvn_engine *e);
/* Why, e.g. the reason of the lane that was lost. Set while paused. */
const struct pvn_err *pvn_engine_pause_reason(const struct pvn_engine *e);
/* Pauses an engine that outlives its lanes. The first reason is kept. */
void pvn_engine_pause(struct pvn_engine *e, const struct pvn_err *why);
/* Paused: for another reason from now on. */
void pvn_engine_pause_because(struct pvn_engine *e, const struct pvn_err *why);
/* Takes the events that the lanes, which are fenced, still have. 0 or the engine's error. */
int pvn_engine_drain(struct pvn_engine *e);
/* Receiver, from any thread: messages that have been received whole, at least. */
uint64_t pvn_engine_received(const struct pvn_engine *e);
/* Sender, paused: the receiver has so many messages. If these are all there are, they are done. */
void pvn_engine_acknowledge(struct pvn_engine *e, uint64_t received);
/* Receiver, drained. */
void pvn_engine_make_report(const struct pvn_engine *e, struct pvn_engine_report *r);
/* Receiver: whether it may go on with lanes that need clear-to-send. False while it keeps messages
 * whose buffers have not been posted. */
bool pvn_engine_may_use_slots(const struct pvn_engine *e);
/*
 * Goes on with these lanes, bound and verified, which the engine borrows; the old ones are not used
 * any more. 0, or the engine's error: the report or the answer is impossible, or it cannot be known
 * whether a message was delivered that the sender has completed.
 */
int pvn_engine_resume_sender(struct pvn_engine *e, struct pvn_lane *const *lanes, int nlanes,
                             const struct pvn_engine_report *r, struct pvn_engine_answer *a);
int pvn_engine_resume_receiver(struct pvn_engine *e, struct pvn_lane *const *lanes, int nlanes,
                               const struct pvn_engine_answer *a);

#endif
