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
    /* payload bytes that are copied behind the header: one piece for the kernel */
    TX_INLINE = 256 - PVN_FRAME_LEN,
    TX_RUN = 32,                          /* chunks that one stream takes at once */
    TX_RUN_BYTES = 256 * 1024,            /* and no more bytes than this, beside the first chunk */
    TX_BUDGET = 1024 * 1024,              /* bytes that one call writes */
    TX_ZEROCOPY_BYTES = 64 * 1024 * 1024, /* unacknowledged; beyond it chunks are copied */
    TX_COPIED_BYTES = 16 * 1024 * 1024,   /* open, of payloads that were copied from GPU memory */
    RX_STAGE = 16 * 1024, /* bytes read ahead of a header while messages are small */
    RX_STAGE_LARGE = 128, /* and while they are large: their payload should not be copied */
    /* Polls of a thread's senders after one that found no acknowledgement, before the same lane asks
     * the kernel again. */
    TX_SETTLE_AFTER = 4,
    /* Chunks whose acknowledgements may come later: after so many the receiver's lane sends them, and the sender's looks. */
    LATE_ACKS = 32,
    LATE_BEHIND = 64,         /* likewise, messages behind the first of them */
    RX_PEEK = 4 * 1024 + 512, /* bytes of a lone message that are looked at before they are taken */
    RX_LARGE = 8 * 1024,      /* bytes: what counts as large */
    /* Empty reads in a row after which a stream is left to the poller, divided by the number of
     * idle receivers of the thread: each read is a system call of every pass over them. */
    RX_IDLE_AFTER = 512,
    RX_IDLE_MIN = 64,
    RX_WATCH_POLLS = 256,    /* polls left out on average, at most, while every stream is idle */
    RX_BUDGET = 1024 * 1024, /* bytes that one poll takes from one stream */
    RX_EAGER = 128 * 1024,   /* bytes at a chunk's end that are read as they come */
    RX_AHEAD = 256 * 1024,   /* bytes of a chunk's middle that one read waits for */
    RX_BYTES_PER_NS = 8,     /* about the most that a stream carries between two processors */
    RX_FOLLOWS_NS = 20000    /* from the end of a chunk to one that follows it at once */
};

enum tx_state {
    TX_FREE,
    TX_QUEUED,   /* no stream has it yet */
    TX_ASSIGNED, /* part of a stream's run */
    TX_UNACKED,  /* written; the peer has not acknowledged it, so its pages are in use */
    TX_TAKEN,    /* written, and the engine keeps a copy: to be reported, and acknowledged later */
    TX_SENT      /* to be reported */
};

/* One chunk to be sent. */
struct tx_frame {
    enum tx_state state;
    uint16_t chunk;
    uint16_t head_len; /* header, and payload when it is small */
    uint8_t stream;    /* that has written it */
    bool zerocopy;     /* the payload is not to be copied */
    bool probe;        /* its beginning is to show what the kernel does, see tcp_trial.c */
    bool timed;        /* how long its writes take is of interest */
    bool needs_ack;    /* the header requests an acknowledgement */
    bool kept;         /* by the engine, once it is written: PVN_EV_TAKEN */
    uint32_t cookie;
    uint32_t ack_nth; /* TX_UNACKED: acknowledgements of the stream that must have come */
    const uint8_t *src;
    size_t len;      /* payload bytes at src, 0 when inlined */
    uint8_t *copied; /* src, where the payload had to be copied from other memory; else NULL */
    const struct pvn_mem_copy *copied_by;
    uint8_t head[PVN_FRAME_LEN + TX_INLINE];
};

/* A kept message that is written and not acknowledged; its frame is free. */
struct late_ack {
    uint32_t cookie;
    uint32_t ack_nth; /* acknowledgements of the stream that must have come */
    uint8_t stream;
};

enum st_step {
    ST_NONE,
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
    const struct pvn_sockio *io; /* how its bytes are read and written, behind the preamble */
    struct pvn_seal *seal;       /* NULL: they are in the clear */
    enum st_step step;
    struct pvn_path_watch path;
    /* set-up */
    uint8_t pre[PVN_TCP_PREAMBLE_MAX];
    int pre_len, pre_done;
    size_t large_done;
    unsigned leaves_by; /* sender: the interface, if dial knows it; else 0 */
    /* sender: the run [first, first + count) of queue positions, `done` bytes of its first chunk
     * are out */
    uint32_t first, count;
    size_t done;
    struct zerocopy_pipe pipe;
    struct tcp_job *job;     /* NULL: no workers; the same until the lane is closed */
    bool with_worker;        /* the job was posted and its result not taken yet */
    uint32_t acks_requested; /* chunks written that request an acknowledgement, free-running */
    uint32_t acks_taken;     /* of them, those acknowledged, free-running; or of the job's, too */
    uint32_t job_acks; /* chunks of the job that request one; it may have written them already */
    /* receiver; of the first one of a sender that looks for clear-to-send entries, too: */
    struct pvn_watch *watch;
    bool idle;
    unsigned empty; /* readings in a row that found nothing */
    bool
        eof; /* the peer has closed; of a sender too, once it waits for late acknowledgements alone */
    /* receiver */
    bool stalled;
    bool early_acks; /* what arrives is acknowledged at once, see pvn_tcp_sockopt_early_acks */
    bool have_frame;
    bool follows;        /* f is large and follows another large one of the thread at once */
    uint64_t wait_until; /* f's rest is not read before; ns, 0: it is read at any time */
    struct pvn_frame f;
    unsigned flags;     /* of f: PVN_FRAME_* */
    unsigned acks_due;  /* chunks that are complete and not acknowledged yet */
    unsigned acks_late; /* of them, those for which nobody waits */
    uint8_t ack_again; /* chunks that a send which found no room would have acknowledged; 0: none */
    bool ack_now;      /* one of them may have come without a copy, or has waited for long */
    bool answered;     /* has sent since it was last declared to be one-way */
    uint8_t *dst;      /* where the payload goes; NULL: to be dropped */
    /* Its place in memory, to which it goes from dst, which is then `landing`; copy NULL: dst is the place. */
    struct pvn_place to;
    uint8_t *landing;
    const struct pvn_mem_copy *landing_of; /* whose it is */
    size_t landing_len;
    uint32_t left; /* payload bytes still to come */
    size_t stage_want;
    uint8_t *stage; /* RX_STAGE bytes */
    size_t s_begin, s_end;
    uint32_t peeked; /* bytes at the head of the kernel's queue that are in hand already */
};

/* How a large chunk is sent. */
enum tcp_method { TCP_COPIED, TCP_SPLICED, TCP_PROBE };

/* The trial that shows which method pays: see tcp_trial.c for the steps. */
struct tcp_trial {
    enum { TRIAL_PATH, TRIAL_ANSWER, TRIAL_MEASURE, TRIAL_DECIDED } step;
    bool chosen;              /* PATH: the chunk is in the queue */
    bool turn;                /* MEASURE: of the last chunk, whether it is spliced */
    bool pays;                /* the last decision: large chunks are sent without a copy */
    int fd;                   /* ANSWER: of the stream that has the chunk */
    uint64_t ns[2], bytes[2]; /* MEASURE: processor time and bytes, copied and spliced */
    uint64_t again_at;        /* DECIDED: sent bytes of the lane */
};

struct tcp_cts;

struct tcp_lane {
    struct pvn_lane l;
    struct pvn_tcp_lane_cfg cfg;
    int nstreams;
    int up;
    bool has_workers;
    unsigned epoch; /* of the process that the lane, its workers and sockets belong to */
    bool fenced;    /* the streams are closed, what they brought is still reported */
    bool paced;     /* sender: one of the connections paces itself, see tcp_setup.c */
    bool lone;      /* the newest message was posted into an idle thread, see tcp_pace.h */
    /* tcp_empty_polls at the newest message or, of a receiver, at its last poll. */
    unsigned empty_seen;
    unsigned neighbours; /* receivers whose polls were empty too since this one's last poll */
    /* Receiver: acknowledgements for which nobody waits, since all that there were had to be sent, and the number of
     * the first one's message. */
    unsigned acks_late;
    uint64_t late_since;
    bool spread; /* receiver: has a time of its own to be polled since its streams are idle */
    unsigned idle_polls; /* polls since the last post_write, saturated at 2 */
    size_t zerocopy_min; /* bytes; chunks from this size on are not copied; 0: all are */
    uint32_t unacked;    /* frames in TX_UNACKED */
    /* Sender: messages posted as kept and not acknowledged; of them, those at late[] that are written, free-running
     * (wrap modulo 2^32) positions. */
    uint32_t kept, late_head, late_tail;
    struct late_ack late[PVN_MAX_SENDS];
    bool settle_late;    /* look for their acknowledgements, however few they are */
    unsigned settled_at; /* polls of the thread's senders when acknowledgements were looked for */
    size_t copied_bytes; /* at `copied` of all frames */
    size_t open_bytes;   /* at src of all frames that are not free */
    /* free-running queue positions (wrap modulo 2^32); position p is q[p % TXQ] and
     * freed <= assigned <= tail */
    uint32_t freed, assigned, tail;
    size_t queued_bytes; /* of frames not assigned yet */
    int next_stream;     /* that gets the next turn */
    struct tx_frame *q;  /* TXQ, sender only; those outside [freed, tail) hold nothing */
    struct tcp_trial trial;
    struct tcp_cts *cts; /* NULL: no clear-to-send */
    struct stream s[PVN_TCP_MAX_STREAMS];
    struct pvn_tcp_lane_stats stats;
};

static inline struct tcp_lane *tcp_of(struct pvn_lane *l)
{
    return (struct tcp_lane *)l;
}

/* tcp_err.c: records why the lane died, the first time, and returns that code. */
int tcp_dead(struct tcp_lane *t, const struct stream *s, int code, const char *doing);
/* The job of s was revoked, and no other lane could go on with that: returns the code, likewise. */
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
/* Takes what the stream's job, which is done or revoked, has written. */
int tcp_tx_take_job(struct tcp_lane *t, struct stream *s);
/* The chunks that are done with. Returns the number of events. */
int tcp_tx_report(struct tcp_lane *t, struct pvn_event *ev, int max);

/* tcp_zerocopy.c: large chunks, sent without a copy. */
void tcp_zerocopy_init(struct stream *s);
/* Takes back the pages that the peer has not acknowledged: resets the stream if there are any. */
void tcp_zerocopy_close(const struct tcp_lane *t, struct stream *s);
/* Writes some of these pieces to the stream; once the first bytes are in, only the rest of the same
 * chunk may follow. The number of bytes written, -EAGAIN; -EOPNOTSUPP: it must be copied, and so
 * must all others; other errors of the stream. */
ssize_t tcp_zerocopy_write(struct stream *s, const struct iovec *iov, int count);
/* Collects acknowledgements: 0 or an error of the stream, which is then recorded. */
int tcp_zerocopy_settle(struct tcp_lane *t);
/* Marks chunks whose acknowledgements have been taken: they are done with. */
void tcp_zerocopy_mark(struct tcp_lane *t);
/* Sender: takes acknowledgements and, of the first stream, clear-to-send entries. Reads the stream while
 * there are chunks to be acknowledged, or in any case. 0 or an error, likewise. */
int tcp_answers_take(struct tcp_lane *t, struct stream *s, bool in_any_case);

/* tcp_trial.c: whether zero-copy pays on this connection. By the comm's thread. */
/* For the next large chunk. Trials follow each other; this begins them. */
enum tcp_method tcp_trial_choose(struct tcp_lane *t);
/* Writes the beginning of these pieces, which it may shorten, with MSG_ZEROCOPY: bytes written,
 * -EAGAIN, -EINTR or an error of the stream. The chunk's memory is in use until it is acknowledged. */
ssize_t tcp_trial_probe(struct tcp_lane *t, const struct stream *s, const struct msghdr *mh);
/* Called before and after a write of a chunk that is `timed`; `to` gets what `from` gave. 0: nothing is measured. */
uint64_t tcp_trial_from(const struct tcp_lane *t);
void tcp_trial_to(struct tcp_lane *t, bool spliced, uint64_t from, ssize_t written);
/* The decision, for a person; a constant. */
const char *tcp_trial_text(const struct tcp_lane *t);

/* tcp_cts.c: clear-to-send entries; all but new, free and post_cts are called where t->cts is set */
int tcp_cts_new(struct tcp_lane *t); /* 0 or -ENOMEM */
void tcp_cts_free(struct tcp_lane *t);
int tcp_post_cts(struct pvn_lane *l, uint64_t slot, int n, const struct pvn_buffer *b);
/* Receiver. is_due: entries are not to be held back any more. send: sends them; 0, -EAGAIN: the
 * kernel has no room for all of them; else an error of the stream by which acknowledgements were lost. */
bool tcp_cts_is_due(const struct tcp_lane *t);
int tcp_cts_send(struct tcp_lane *t);
/* Receiver: adds acknowledgements of so many chunks on the first stream, 1 to 255, to what is sent next.
 * As before. */
int tcp_cts_acknowledge(struct tcp_lane *t, uint8_t chunks);
/* Receiver: 0, or the error by which the first stream takes no more entries; -EPIPE: the peer has closed. */
int tcp_cts_lost(const struct tcp_lane *t);
/* Receiver: something has come to this slot. */
void tcp_cts_used(struct tcp_lane *t, uint64_t slot);
/* Sender. is_next: a byte on the first stream belongs to an entry. take: takes it, 0 or an error. */
bool tcp_cts_is_next(const struct tcp_lane *t, uint8_t byte);
int tcp_cts_take(struct tcp_lane *t, uint8_t byte);
/* Sender: takes the next entry that has come; NULL: there is none. It stays as next_slot promises. */
const struct pvn_cts *tcp_cts_next(struct tcp_lane *t);
/* Sender, before the socket is closed: entries left unread would make a reset of the stream's end, by
 * which the peer might lose the last messages. One that comes after it still would: that of a receive for
 * which there is no send, which NCCL does not post. It takes what is in flight then, if chunks are not
 * acknowledged; what the peer's kernel has can still be read. */
void tcp_cts_drop(const struct stream *s);

/* tcp_rx.c */
void tcp_free_landing(struct stream *s);
/* Leaves a stream to the poller. 0 or an error of the stream. */
int tcp_go_idle(struct tcp_lane *t, struct stream *s);
/* Sends the acknowledgements that are due. 0 or an error of a stream. */
int tcp_rx_acknowledge(struct tcp_lane *t);
/* Sends what is due of clear-to-send entries and acknowledgements beside them. Likewise, or -EAGAIN. */
int tcp_rx_send_entries(struct tcp_lane *t);
int tcp_rx_poll(struct tcp_lane *t, struct pvn_event *ev, int max);
/* Takes what the stream's job, which is done or revoked, has read. */
int tcp_rx_take_job(struct tcp_lane *t, struct stream *s);
/* Before the socket is closed: bytes left unread would turn the end of the stream into a reset. */
void tcp_rx_take_peeked(struct stream *s);

#endif
