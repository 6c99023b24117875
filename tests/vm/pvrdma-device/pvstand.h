/* SPDX-FileCopyrightText: the nccl-net-pvrdma authors
 * SPDX-License-Identifier: Apache-2.0 */
/* pvstand: a stand-in for the host side of QEMU 7.2's "pvrdma" device.
 *
 * A library that is LD_PRELOADed into qemu-system-x86_64. It defines the libibverbs entry points
 * that QEMU's RDMA backend imports, so that the emulated PVRDMA device works on a machine without
 * any RDMA device or module. RC and UD traffic travels over Unix stream sockets between the QEMU
 * processes of one fabric (including a QEMU with itself). It answers QEMU's rdmacm-mux protocol
 * too.
 *
 *   PVSTAND_DIR    rendezvous folder, shared by all QEMUs of a fabric (at most 79 bytes); required
 *   PVSTAND_MUX    path of the mux socket, the same as in QEMU's -chardev; required
 *   PVSTAND_HOOKS  1: complete the device (hooks.c); 0: only what stock QEMU forwards
 *   PVSTAND_LOG    1: say on stderr what happens
 *   PVSTAND_CTL    path of a datagram socket for commands (control.c); hooks only
 *   PVSTAND_STATS  file for the doorbell counts, written when QEMU exits; hooks only
 *
 * Without hooks a guest gets what QEMU 7.2 forwards: SEND and RECV, every work request signalled,
 * no immediate data, no completion events, rkey always 0xffffffff. With hooks the guest's own
 * send-queue entry is read, so that SEND_WITH_IMM, RDMA_WRITE[_WITH_IMM], RDMA_READ and the two
 * atomics work, unsignalled requests stay silent, completion events arrive, queue pairs flush in
 * the ERROR state, rkeys are real and the capabilities say so.
 *
 * Not modelled: SRQ limit events, solicited-only arming, timeouts and retry counts (a missing
 * receive waits without end), path MTU, connection manager messages (acknowledged and dropped),
 * bandwidth.
 *
 * Files: pvstand.c start, shared state; verbs.c objects; data.c posting, polling, completions;
 * fabric.c transport between QEMUs; mux.c GID registration; hooks.c, divert.c QEMU's functions
 * diverted; control.c commands, asynchronous events, doorbell counts.
 *
 * Lock: stand_lock guards everything in this header unless said otherwise. Functions marked
 * "locked" are called with it held. It is taken after QEMU's big lock, never before. */
#ifndef PVN_TESTS_VM_PVSTAND_H
#define PVN_TESTS_VM_PVSTAND_H

#include <infiniband/verbs.h>
#include <pthread.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

/* verbs.h wraps these in macros; here they are the functions to define. */
#undef ibv_query_port
#undef ibv_reg_mr
#undef ibv_reg_mr_iova

#define EXPORT __attribute__((visibility("default")))

enum {
    MAX_QPN = 1024, /* guests index a table of max_qp entries by QPN, unchecked */
    FIRST_QPN = 16,
    NGID = 254,
    MAX_SGE = 16
};

struct peer;

/* Fields of a completion that QEMU's own path from the backend to the guest loses. */
struct fix {
    uint64_t guest_wr_id;
    uint32_t opcode, imm, wc_flags;
    bool silent; /* unsignalled and successful, so the guest must not see it */
};

struct cqe {
    struct ibv_wc wc;
    struct fix fix;
    struct cqe *next;
};

struct cq {
    struct ibv_cq v;
    struct cqe *head, **tail;
    bool armed;
    bool dead; /* destroyed; not freed, because QEMU's thread may still use it */
    struct cq *event_next;
    bool event_queued;
};

/* Debian's QEMU is built for "legacy reg_mr": it translates local addresses and keys to the host's. A remote address
 * stays the guest's, so a region has two address ranges. */
struct mr {
    struct ibv_mr v;
    uint64_t iova;  /* start as local requests name it */
    uint64_t guest; /* start as remote requests name it */
    int access;
    struct mr *next;
};

struct segment {
    void *p;
    uint32_t len;
};

struct recv_request {
    uint64_t id, guest_id;
    int n;
    struct ibv_sge sge[MAX_SGE];
    struct recv_request *next;
};

struct recv_queue {
    struct recv_request *head, **tail;
};

struct srq {
    struct ibv_srq v;
    struct recv_queue queue;
    struct ibv_srq_attr attr;
};

/* The header of a message between two QEMUs, in host byte order; len bytes follow. */
enum frame_type { FRAME_REQUEST = 1, FRAME_RESPONSE, FRAME_UD };

struct frame {
    uint32_t type, op, src_qpn, dst_qpn;
    uint32_t len;
    uint32_t imm, rkey; /* rkey: the Q_Key for FRAME_UD */
    uint32_t status;    /* FRAME_RESPONSE: enum ibv_wc_status */
    uint32_t want;      /* bytes a READ requests */
    uint32_t pad;
    uint64_t remote_addr, compare_add, swap;
    uint64_t serial; /* matches a response with its request */
    uint8_t sgid[16];
};

struct send_request {
    uint64_t id, guest_id;
    uint32_t op;
    bool signaled;
    int n;
    struct segment segments[MAX_SGE];
    uint32_t len;
    uint64_t serial;
    struct send_request *next;
};

struct message {
    struct frame frame;
    struct peer *from;
    struct message *next;
    uint8_t data[];
};

struct qp {
    struct ibv_qp v;
    struct srq *srq;
    struct recv_queue recvs;
    struct send_request *pending, **pending_tail; /* sent, not yet acknowledged */
    struct message *in, **in_tail;                /* arrived, not yet consumed */
    union ibv_gid dgid;
    uint32_t dest_qpn, qkey;
    enum ibv_qp_state state;
    struct ibv_qp_attr attr; /* path_mtu, rq_psn, sq_psn for query_qp */
};

struct ah {
    struct ibv_ah v;
    struct ibv_ah_attr attr;
};

/* A message to be written by the sending thread. */
struct outgoing {
    struct peer *peer; /* the receiver of a response; NULL: the owner of gid */
    union ibv_gid gid;
    struct frame frame;
    int n;
    struct segment segments[MAX_SGE];
    void *own; /* freed with the message */
    struct qp *qp;
    uint32_t qpn;
    struct outgoing *next;
};

extern pthread_mutex_t stand_lock;
extern char stand_dir[80];
extern char stand_self[108]; /* this QEMU's own socket */
extern bool stand_hooks;     /* set at start, constant then */
extern struct qp *stand_qps[MAX_QPN];
extern union ibv_gid stand_gids[NGID];

void stand_say(const char *format, ...) __attribute__((format(printf, 1, 2)));
int stand_listen(const char *path); /* a listening stream socket; ends QEMU when it cannot */
void stand_thread(void *(*run)(void *), void *arg);
void *stand_alloc(size_t size); /* zeroed; ends QEMU when there is none */

/* mux.c: the path of the symbolic link that says which QEMU owns a GID. */
void stand_gid_link(const union ibv_gid *gid, char *out, size_t size);
void *stand_mux_thread(void *listener);

/* verbs.c */
extern struct ibv_comp_channel stand_channel;
extern struct cq *stand_event_head, **stand_event_tail;
extern __thread uint64_t stand_guest_start; /* guest address of the region being registered, or 0 */
extern __thread uint32_t stand_last_key;    /* of the region registered last */

/* The address of len bytes in a region of pd. NULL with *bad set if the key, the range or the access flags do not
 * allow it. With any_key the key is ignored and any region of pd may match. Locked. */
struct lookup {
    struct ibv_pd *pd;
    uint32_t key;
    bool any_key, remote;
    int need; /* access flags */
};
void *stand_translate(const struct lookup *how, uint64_t addr, uint64_t len, bool *bad);
/* Translates a scatter list. True if an element is bad. Locked. */
bool stand_translate_list(struct ibv_pd *pd, const struct ibv_sge *sge, int n, int need,
                          struct segment *out, uint32_t *total);

/* data.c */
extern __thread struct fix stand_polled[2]; /* of the entries of the last poll, for hooks.c */
extern __thread int stand_polled_n, stand_polled_next;
void stand_set_ops(struct ibv_context *ctx);
void stand_send_done(struct qp *q, struct send_request *w, enum ibv_wc_status status); /* locked */
void stand_recv_done(struct qp *q, struct recv_request *r, enum ibv_wc_status status,
                     const struct frame *f, uint32_t len, uint32_t flags); /* locked */
struct send_request *stand_take_pending(struct qp *q);                     /* locked */
void stand_flush(struct qp *q); /* the ERROR state: completes all outstanding requests; locked */
void stand_scatter(struct segment *s, int n, const void *data, size_t len);

/* fabric.c */
void stand_fabric_start(void);
void stand_push(struct outgoing *t);  /* locked */
void stand_progress(struct qp *q);    /* consumes the messages that have arrived on q; locked */
void stand_free_queues(struct qp *q); /* locked */

/* hooks.c */
void stand_install_hooks(void);
/* QEMU's big lock and interrupts; NULL without hooks. */
extern void (*stand_bql_lock)(const char *file, int line);
extern void (*stand_bql_unlock)(void);
extern bool (*stand_bql_held)(void);
/* Puts an asynchronous event into the guest's ring; false when the guest has none yet. */
bool stand_raise_event(uint32_t type, uint32_t info);

/* divert.c: makes QEMU's function `name` jump to `to`, and stores a pointer to call the original function at *original.
 * Ends QEMU if the function is missing or does not begin with plain instructions. */
void stand_divert(const char *name, void *to, void *original);

/* control.c */
void stand_control_start(void);
void stand_async_event(enum ibv_event_type type, uint32_t info); /* locked */

/* Counts the doorbells that the guest wrote, per queue. Any thread may call these. */
enum doorbell {
    DOORBELL_SEND,
    DOORBELL_RECV,
    DOORBELL_SRQ,
    DOORBELL_POLL,
    DOORBELL_ARM,
    NDOORBELL
};
void stand_count_doorbell(enum doorbell kind, uint32_t handle);
void stand_count_request(uint32_t qpn,
                         uint32_t opcode); /* a work request that the device fetched */

#endif
