/* SPDX-FileCopyrightText: the nccl-net-pvrdma authors
 * SPDX-License-Identifier: Apache-2.0 */
/* Shared by the TCP lane's files. */
#ifndef PVN_NET_TCP_PRIV_H
#define PVN_NET_TCP_PRIV_H

#include <sys/socket.h>
#include <sys/types.h>
#include <sys/uio.h>

#include "base/poller.h"
#include "connect/path_watch.h"
#include "net-tcp/frame.h"
#include "net-tcp/tcp_lane.h"
#include "net-tcp/tcp_workers.h"
#include "seal/sockio.h"

enum {
    TXQ = 64, /* chunks queued per lane (a power of two) */
    /* payload bytes that are copied behind the header, so that the kernel gets one piece */
    TX_INLINE = 256 - PVN_FRAME_LEN,
    TX_RUN = 32,               /* chunks that one stream takes at once */
    TX_RUN_BYTES = 256 * 1024, /* bytes that one stream takes at once, or one longer chunk */
    TX_BUDGET = 1024 * 1024,   /* bytes that one call writes */
    TX_ZEROCOPY_BYTES = 64 * 1024 * 1024, /* bytes in flight; further chunks are copied */
    TX_COPIED_BYTES = 16 * 1024 * 1024,   /* bytes in flight that were copied from GPU memory */
    RX_STAGE = 16 * 1024,                 /* bytes read ahead while messages are small */
    RX_STAGE_LARGE = 128, /* the same while they are large: do not copy their payload */
    /* A lane that found no acknowledgement reads again after so many polls of the thread's
     * senders. */
    TX_SETTLE_AFTER = 4,
    /* Late acknowledgements (PVN_FRAME_ACK_LATER): once so many are due, the receiver sends them
     * and the sender reads them. */
    LATE_ACKS = 32,
    LATE_BEHIND = 64,         /* the receiver also sends them so many messages after the first */
    RX_PEEK = 4 * 1024 + 512, /* bytes of a lone message that are peeked at before they are read */
    RX_LARGE = 8 * 1024,      /* bytes; messages from this size on are large */
    /* Empty reads in a row after which a stream is left to the poller. The number of the thread's
     * idle receivers divides it, because each read is a system call in every pass over them. */
    RX_IDLE_AFTER = 512,
    RX_IDLE_MIN = 64,
    /* limit of the polls that are skipped on average while all streams are idle */
    RX_WATCH_POLLS = 256,
    RX_BUDGET = 1024 * 1024, /* bytes that one poll takes from one stream */
    RX_EAGER = 128 * 1024,   /* bytes at a chunk's end that are read as they come */
    RX_AHEAD = 256 * 1024,   /* bytes of a chunk's middle that one read waits for */
    RX_BYTES_PER_NS = 8,     /* about the most that a stream carries between two processors */
    RX_FOLLOWS_NS = 20000    /* from the end of a chunk to one that follows it at once */
};

enum tx_state {
    TX_FREE,
    TX_QUEUED,   /* no stream has taken it yet */
    TX_ASSIGNED, /* part of a stream's run */
    TX_UNACKED,  /* written; the peer has not acknowledged it, so its pages are in use */
    TX_TAKEN,    /* written; the engine keeps a copy: to be reported, acknowledged later */
    TX_SENT      /* to be reported */
};

/* One chunk to be sent. */
struct tx_frame {
    enum tx_state state;
    uint16_t chunk;
    uint16_t head_len; /* header, and payload when it is small */
    uint8_t stream;    /* the stream that has written it */
    bool zerocopy;     /* send the payload without a copy */
    bool probe; /* its beginning tests what the kernel does with zero-copy data, see tcp_trial.c */
    bool timed; /* the trial measures its writes */
    bool needs_ack; /* the header requests an acknowledgement */
    bool kept;      /* the engine keeps a copy once it is written: PVN_EV_TAKEN */
    uint32_t cookie;
    uint32_t ack_nth; /* TX_UNACKED: acknowledged once the stream's acks_taken reaches this */
    const uint8_t *src;
    size_t len;      /* payload bytes at src, 0 when inlined */
    uint8_t *copied; /* src, if the payload was copied from other memory; else NULL */
    const struct pvn_mem_copy *copied_by;
    uint8_t head[PVN_FRAME_LEN + TX_INLINE];
};

/* A kept message that is written and not acknowledged; its frame is free. */
struct late_ack {
    uint32_t cookie;
    uint32_t ack_nth; /* acknowledged once the stream's acks_taken reaches this */
    uint8_t stream;
};

enum st_step {
    ST_NONE,
    ST_DIAL,
    ST_CONNECTING,
    ST_PREAMBLE,
    ST_SEAL,
    ST_LARGE,
    ST_ECHO,
    ST_LARGE_BACK,
    ST_UP
};

/* The pipe through which the pages of a chunk get into a socket. */
struct zerocopy_pipe {
    int rd, wr;  /* -1: none yet */
    size_t held; /* bytes of the current chunk that are in it */
};

struct stream {
    int fd;                      /* -1: none */
    const struct pvn_sockio *io; /* reads and writes its bytes behind the preamble */
    struct pvn_seal *seal;       /* NULL: not encrypted */
    enum st_step step;
    struct pvn_path_watch path;
    /* set-up */
    uint8_t pre[PVN_TCP_PREAMBLE_MAX];
    int pre_len, pre_done;
    size_t large_done;
    unsigned redials; /* sender: connections that failed; the next one is tried at redial_ns */
    uint64_t redial_ns;
    unsigned leaves_by; /* sender: index of the outgoing interface, if dial knows it; else 0 */
    /* Sender: the stream's run is [first, first + count) of the queue's positions; `done` bytes of
     * its first chunk are written. */
    uint32_t first, count;
    size_t done;
    struct zerocopy_pipe pipe;
    struct tcp_job *job;     /* NULL: no workers; the same until the lane is closed */
    bool with_worker;        /* the job was posted and its result was not taken yet */
    uint32_t acks_requested; /* chunks written that request an acknowledgement, free-running */
    uint32_t acks_taken;     /* chunks acknowledged, free-running; may include chunks of the job */
    /* chunks of the job that request an acknowledgement; some may be written already */
    uint32_t job_acks;
    /* receiver, and the first stream of a sender that reads clear-to-send entries: */
    struct pvn_watch *watch;
    bool idle;
    unsigned empty; /* reads in a row that found nothing */
    /* The peer has closed its end. A sender sets it only while no acknowledgements but late ones are
     * outstanding. */
    bool eof;
    /* receiver */
    bool stalled;
    bool early_acks; /* the kernel acknowledges on arrival, see pvn_tcp_sockopt_early_acks */
    bool have_frame;
    bool follows;        /* f is large and follows another large one of the thread at once */
    uint64_t wait_until; /* ns; the rest of f is not read before this time; 0: no limit */
    struct pvn_frame f;
    unsigned flags;     /* of f: PVN_FRAME_* */
    unsigned acks_due;  /* chunks that are complete and not acknowledged yet */
    unsigned acks_late; /* of acks_due, the late ones, for which nobody waits */
    /* chunks in an acknowledgement that found no room and must be repeated; 0: none */
    uint8_t ack_again;
    /* send acks_due at once: a chunk may be zero-copy, or an acknowledgement is overdue */
    bool ack_now;
    bool answered; /* has sent since the socket was last declared one-way */
    uint8_t *dst;  /* where the payload goes; NULL: it is dropped */
    /* The payload's final place. If to.copy is set, dst is `landing` and the payload is copied from
     * there to the final place; else dst is the final place. */
    struct pvn_place to;
    uint8_t *landing;
    const struct pvn_mem_copy *landing_of; /* owner of `landing` */
    size_t landing_len;
    uint32_t left; /* payload bytes still to come */
    size_t stage_want;
    uint8_t *stage; /* RX_STAGE bytes */
    size_t s_begin, s_end;
    uint32_t peeked; /* bytes at the head of the kernel's queue that a peek has read already */
};

/* How a large chunk is sent. */
enum tcp_method { TCP_COPIED, TCP_SPLICED, TCP_PROBE };

/* The trial that shows which method pays: see tcp_trial.c for the steps. */
struct tcp_trial {
    enum { TRIAL_PATH, TRIAL_ANSWER, TRIAL_MEASURE, TRIAL_DECIDED } step;
    bool chosen;              /* PATH: the test chunk is in the queue */
    bool turn;                /* MEASURE: the last chunk was spliced */
    bool pays;                /* the last decision: large chunks are sent without a copy */
    int fd;                   /* ANSWER: socket of the stream that has the test chunk */
    uint64_t ns[2], bytes[2]; /* MEASURE: processor time and bytes, copied and spliced */
    uint64_t again_at; /* DECIDED: the next trial begins when the lane has sent so many bytes */
};

struct tcp_cts;

struct tcp_lane {
    struct pvn_lane l;
    struct pvn_tcp_lane_cfg cfg;
    int nstreams;
    bool has_workers;
    unsigned epoch; /* fork epoch of the process that owns the lane, its workers and sockets */
    bool fenced;    /* the streams are closed; data that they brought is still reported */
    bool paced;     /* sender: bbr paces one of the connections, see tcp_setup.c */
    bool lone;      /* the newest message was posted into an idle thread, see tcp_pace.h */
    /* Sender: tcp_empty_polls when the newest message was posted. Receiver: at its last poll. */
    unsigned empty_seen;
    unsigned neighbours; /* other receivers whose polls were empty since this one's last poll */
    /* Receiver: late acknowledgements that came due since they were last flushed, and the message
     * number of the first of them. */
    unsigned acks_late;
    uint64_t late_since;
    /* receiver: its streams are idle and its polls are spread among its neighbours', see
     * watch_idle */
    bool spread;
    unsigned idle_polls; /* polls since the last post_write, saturated at 2 */
    /* bytes; chunks from this size on are sent without a copy; 0: all are copied */
    size_t zerocopy_min;
    uint32_t unacked; /* frames in TX_UNACKED */
    /* Sender: kept counts the messages posted as kept that are not acknowledged. Those that are
     * written are at late[late_head, late_tail), free-running (wrap modulo 2^32). */
    uint32_t kept, late_head, late_tail;
    struct late_ack *late; /* PVN_MAX_SENDS, sender only */
    bool settle_late;      /* read late acknowledgements, however few are outstanding */
    unsigned settled_at;   /* tx_polls at the last read that found no acknowledgement */
    size_t copied_bytes;   /* at `copied` of all frames */
    size_t open_bytes;     /* at src of all frames that are not free */
    /* free-running queue positions (wrap modulo 2^32); position p is q[p % TXQ] and
     * freed <= assigned <= tail */
    uint32_t freed, assigned, tail;
    size_t queued_bytes; /* of frames not assigned yet */
    int next_stream;     /* the stream with the next turn */
    struct tx_frame *q;  /* TXQ, sender only; those outside [freed, tail) hold nothing */
    struct tcp_trial trial;
    struct tcp_cts *cts; /* NULL: no clear-to-send */
    struct pvn_tcp_lane_stats stats;
    /* Sender, set-up: why the connection failed that was dialled last; NULL: none has failed. */
    struct pvn_err *dial_err;
    struct stream s[]; /* cfg.streams */
};

static inline struct tcp_lane *tcp_of(struct pvn_lane *l)
{
    return (struct tcp_lane *)l;
}

/* tcp_err.c: records why the lane died, unless that is known already. Returns the recorded code. */
int tcp_dead(struct tcp_lane *t, const struct stream *s, int code, const char *doing);
/* Records that the job of s was revoked, which failover to another lane cannot cure. Returns
 * likewise. */
int tcp_revoked(struct tcp_lane *t, const struct stream *s);

/* tcp_setup.c */
int tcp_offer(struct pvn_lane *l, void *buf, size_t cap);
int tcp_bind(struct pvn_lane *l, const void *peer, size_t len);
int tcp_adopt(struct pvn_lane *l, int stream, int fd);
int tcp_verify(struct pvn_lane *l);

/* tcp_tx.c */
int tcp_post_write(struct pvn_lane *l, const struct pvn_write *w);
int tcp_next_slot(struct pvn_lane *l, const struct pvn_cts **cts);
int tcp_kick(struct pvn_lane *l);
int tcp_tx_poll(struct tcp_lane *t, struct pvn_event *ev, int max);
void tcp_tx_free(struct tcp_lane *t);
/* Accounts for the bytes that the stream's job, which is done or revoked, has written. */
int tcp_tx_take_job(struct tcp_lane *t, struct stream *s);
/* Reports chunks that are done. Returns the number of events. */
int tcp_tx_report(struct tcp_lane *t, struct pvn_event *ev, int max);

/* tcp_zerocopy.c: large chunks, sent without a copy. */
void tcp_zerocopy_init(struct stream *s);
/* Resets the stream if the peer has not acknowledged all zero-copy chunks, so that the kernel drops
 * their pages. */
void tcp_zerocopy_close(const struct tcp_lane *t, struct stream *s);
/* Writes some of these pieces to the stream. Once a chunk's first bytes are written, only the rest
 * of the same chunk may follow. Returns the number of bytes written, -EAGAIN, -EOPNOTSUPP if this
 * chunk and all others must be copied, or another error of the stream. */
ssize_t tcp_zerocopy_write(struct stream *s, const struct iovec *iov, int count);
/* Reads acknowledgements on all streams. 0 or an error of a stream, which is then recorded. */
int tcp_zerocopy_settle(struct tcp_lane *t);
/* Marks acknowledged chunks as done. */
void tcp_zerocopy_mark(struct tcp_lane *t);
/* Sender: reads acknowledgements and, on the first stream, clear-to-send entries. Reads only while
 * chunks are unacknowledged, unless in_any_case. 0 or an error, likewise. */
int tcp_answers_take(struct tcp_lane *t, struct stream *s, bool in_any_case);

/* tcp_trial.c: finds out whether zero-copy pays on this connection. Called by the comm's thread. */
/* The method for the next large chunk. Begins the next trial when it is due. */
enum tcp_method tcp_trial_choose(struct tcp_lane *t);
/* Writes the beginning of these pieces, which it may shorten, with MSG_ZEROCOPY. Returns bytes
 * written, -EAGAIN, -EINTR or an error of the stream. The chunk's memory is in use until it is
 * acknowledged. */
ssize_t tcp_trial_probe(struct tcp_lane *t, const struct stream *s, const struct msghdr *mh);
/* Called before and after a write of a `timed` chunk. tcp_trial_from returns the start time, which
 * tcp_trial_to takes, or 0 if nothing is measured. */
uint64_t tcp_trial_from(const struct tcp_lane *t);
void tcp_trial_to(struct tcp_lane *t, bool spliced, uint64_t from, ssize_t written);
/* The decision as a constant text for logs. */
const char *tcp_trial_text(const struct tcp_lane *t);

/* tcp_cts.c: clear-to-send entries. All functions but new, free and post_cts require t->cts. */
int tcp_cts_new(struct tcp_lane *t); /* 0 or -ENOMEM */
void tcp_cts_free(struct tcp_lane *t);
int tcp_post_cts(struct pvn_lane *l, uint64_t slot, int n, const struct pvn_buffer *b);
/* Receiver. tcp_cts_is_due: true if entries must not be held back any longer. tcp_cts_send sends
 * entries that are due: 0, -EAGAIN if the kernel has no room for all of them, or an error of the
 * stream that lost acknowledgements. */
bool tcp_cts_is_due(const struct tcp_lane *t);
int tcp_cts_send(struct tcp_lane *t);
/* Receiver: adds the acknowledgement of 1 to 255 chunks of the first stream to the bytes that are
 * sent next. Returns as tcp_cts_send does. */
int tcp_cts_acknowledge(struct tcp_lane *t, uint8_t chunks);
/* Receiver: 0, or the error after which the first stream takes no more entries; -EPIPE if the peer
 * has closed. */
int tcp_cts_lost(const struct tcp_lane *t);
/* Receiver: a chunk for this slot has arrived. */
void tcp_cts_used(struct tcp_lane *t, uint64_t slot);
/* Sender. tcp_cts_is_next: true if this byte of the first stream belongs to an entry. tcp_cts_take
 * takes the byte: 0 or an error. */
bool tcp_cts_is_next(const struct tcp_lane *t, uint8_t byte);
int tcp_cts_take(struct tcp_lane *t, uint8_t byte);
/* Sender: takes the next entry that has arrived; NULL if there is none. The entry stays valid as
 * next_slot (engine/lane.h) promises. */
const struct pvn_cts *tcp_cts_next(struct tcp_lane *t);
/* Sender: reads and drops entries before the socket is closed. Unread entries would turn the end of
 * the stream into a reset, by which the peer might lose the last messages. An entry that arrives
 * later still causes a reset. It belongs to a receive without a send, which NCCL does not post.
 * That reset loses data in flight if chunks are not acknowledged; the peer can still read data that
 * its kernel has. */
void tcp_cts_drop(const struct stream *s);

/* tcp_rx.c */
void tcp_free_landing(struct stream *s);
/* Leaves a stream to the poller until data arrives. 0 or an error of the stream. */
int tcp_go_idle(struct tcp_lane *t, struct stream *s);
/* Sends the acknowledgements that are due. 0 or an error of a stream. */
int tcp_rx_acknowledge(struct tcp_lane *t);
/* Sends clear-to-send entries that are due, and the acknowledgements queued with them. Likewise, or
 * -EAGAIN. */
int tcp_rx_send_entries(struct tcp_lane *t);
int tcp_rx_poll(struct tcp_lane *t, struct pvn_event *ev, int max);
/* Takes the bytes that the stream's job, which is done or revoked, has read. */
int tcp_rx_take_job(struct tcp_lane *t, struct stream *s);
/* Called before the socket is closed: reads the peeked bytes, because unread bytes would turn the
 * end of the stream into a reset. */
void tcp_rx_take_peeked(struct stream *s);

#endif
