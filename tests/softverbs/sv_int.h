/* SPDX-FileCopyrightText: the nccl-net-pvrdma authors
 * SPDX-License-Identifier: Apache-2.0 */
/*
 * Internals of softverbs. One lock (sv.lock) guards everything. Functions whose name ends in
 * _locked, or that take an object of this file, expect that the caller holds it. Only the public
 * entry points take it.
 */
#ifndef SV_INT_H
#define SV_INT_H

#include "config.h"

#include <infiniband/verbs.h>
#include <pthread.h>
#include <stdbool.h>
#include <stdint.h>
#include <stdio.h>

#include "softverbs.h"

#undef ibv_query_port
#undef ibv_reg_mr
#undef ibv_reg_mr_iova

#define SV_EXPORT __attribute__((visibility("default")))

enum {
    SV_DEV_MAX = 16,
    SV_PORT_MAX = 4,
    SV_GID_MAX = 256,
    SV_SGE_MAX = 32,
    SV_INLINE_MAX = 512,
    SV_SEG = 256 * 1024,     /* a message travels in pieces of at most this many bytes */
    SV_WINDOW = 1024 * 1024, /* bytes a QP may have in flight */
    SV_SLOT_MAX = 511,       /* processes of a fabric; a QPN is slot and index */
    SV_QP_BITS = 15,
    SV_QP_MAX = 1 << SV_QP_BITS,
    SV_RULE_MAX = 64,
    SV_ATOMIC_LOG = 16,
};

/* The adapter's use of IBV_ACCESS_RELAXED_ORDERING, see sv_relaxed.c. */
enum sv_relaxed {
    SV_RELAXED_IGNORED,
    SV_RELAXED_TAKEN,     /* the adapter takes it and keeps the order all the same */
    SV_RELAXED_USED,      /* and does not */
    SV_RELAXED_REFUSED,   /* a registration with it fails with EINVAL */
    SV_RELAXED_NO_DMABUF, /* one of a dma-buf alone does */
};

/* The adapter that is played. Filled from a profile, then by `set` lines. */
struct sv_profile {
    char name[16];     /* of the profile */
    char dev_name[24]; /* name of a device, without its number */
    char driver[24];   /* kernel driver, for sysfs */
    char hca_type[32];
    char fw_ver[24];
    long vendor_id, part_id;
    long devices, ports, host; /* host: last byte of the addresses */
    long max_inline;
    long max_sge, max_qp_wr, max_cqe, max_cq_ring, sq_ring_bytes;
    long pow2; /* queue sizes are rounded up to powers of two */
    long max_mr_size, max_qp, max_cq, max_mr, max_pd, rd_atom, atomics;
    long dmabuf, ignore_iova;
    long relaxed_ordering; /* enum sv_relaxed */
    long max_msg_sz, enforce_msg_sz;
    long comp_vectors;
    long speed, width, mtu; /* ibv_port_attr codes */
    long gid_v1, gid_v2, gid_tbl_len, link_local, ipv4;
    long ethernet;      /* link layer: 1 Ethernet, 0 InfiniBand */
    long no_link_layer; /* 1: neither of the two, as EFA */
    long grh_required;  /* InfiniBand: ports that share a LID */
    long doorbell_poll; /* an empty poll rings a doorbell */
    long doorbell_ns;   /* for which one keeps its caller, as an exit to a hypervisor does */
    long command_us;    /* for which a command of the device keeps its caller */
    long interruptible; /* a signal meanwhile makes it fail with ETIMEDOUT */
    long soft_status;   /* Soft-RoCE's statuses where they differ from hardware's */
    long retry7_endless;
    long check_mtu;
    long memlock_kb;     /* 0: no limit */
    long async;          /* requests are executed by the service thread, not inside ibv_post_send */
    long real_time;      /* priority of the service thread, as of SCHED_FIFO; 0: an ordinary one */
    long timeout_cap_ms; /* 0: the QP's own timeout */
    long stay;           /* commands are served until the end, once a device was opened */
    long descend;        /* 1: place the cache lines of a piece from the last to the first; 2: the
                          * words, of a piece longer than a line */
    long routed;         /* IPv4 GIDs of different /24 networks reach each other */
    long no_write;       /* RDMA WRITE: 1 refused by the post, 2 by the peer, 3 executed as SEND */
    long fork_safe;
    long cuda;        /* memory of a GPU is copied by the CUDA driver, see sv_cuda.c */
    long peer_memory; /* and may be registered by its address, without a dma-buf */
    long no_pci;      /* sysfs shows no PCI functions: none is taken for one of the machine's */
    long iwarp;       /* RDMA over TCP, which rdma_cm alone connects */
    long uc;          /* there are unreliable connections, for SENDs of one piece */
    long seed;
};

struct sv_gid {
    union ibv_gid gid;
    uint32_t type; /* enum ibv_gid_type: 0 IB, 1 RoCE v1, 2 RoCE v2 */
    bool valid;
    char ndev[IBV_SYSFS_NAME_MAX];
};

struct sv_port {
    enum ibv_port_state state;
    struct sv_gid gid[SV_GID_MAX];
};

struct sv_dev {
    struct ibv_device ibv; /* first: an ibv_device is a sv_dev */
    unsigned int index;
    struct sv_port port[SV_PORT_MAX]; /* [0] is port 1 */
    bool fatal;
    bool other;       /* its GUID is not the one it began with */
    uint64_t gone_at; /* the end of its removal, 0: none has begun */
};

struct sv_event {
    struct sv_event *next;
    struct ibv_async_event ev;
    struct sv_cq *cq; /* completion channels */
};

struct sv_queue { /* events behind a file descriptor that counts them */
    int fd;
    struct sv_event *head, **tail;
};

struct sv_ctx {
    struct sv_dev *dev;
    struct sv_ctx *next;
    struct sv_queue async;
    struct sv_stats stats;
    unsigned int refs;        /* objects alive */
    struct sv_shared *shared; /* of the process that has opened it */
    bool taken;               /* by a forked child, see sv_fork.c; so in the other objects */
    bool dead;                /* its device has failed, and was renewed since */
    bool gone;                /* the kernel has taken its device away */
    bool leaving;             /* the kernel is at it, see sv_dev_remove */
    unsigned int creating, destroying; /* calls for QPs that have not returned yet */
    struct verbs_context v;            /* last: the ibv_context is its tail */
};

struct sv_channel {
    struct ibv_comp_channel ibv;
    struct sv_queue queue;
};

struct sv_pd {
    struct ibv_pd ibv;
    struct sv_pd *next;
    unsigned int refs;
    bool taken;
};

struct sv_mr {
    struct ibv_mr ibv;
    int access;
    uint64_t iova;
    char *mem;   /* where iova is in this process */
    bool mapped; /* mem is a mapping of ours (dma-buf) */
    bool device; /* mem is an address on a GPU */
    bool taken;
    bool lost;     /* destroyed with its device */
    uint64_t born; /* of regions and queue pairs, in the order of creation */
};

struct sv_cqe {
    struct ibv_wc wc;
    struct sv_qp *qp;
    uint64_t index; /* of the request in its queue */
    bool send;
};

struct sv_cq {
    struct ibv_cq ibv;
    struct sv_cq *next;
    struct sv_cqe *ring;
    uint32_t cap, head, count;
    int armed; /* 0 no, 1 next, 2 next solicited or failed */
    bool overrun, taken;
    unsigned int refs;
    uint32_t events_given, async_given;
    struct sv_stats stats;
};

struct sv_wqe {
    uint64_t wr_id, len, raddr, compare, swap;
    uint32_t rkey, imm;
    enum ibv_wr_opcode opcode;
    unsigned int flags;
    int num_sge;
    struct ibv_sge *sge; /* of this slot */
    char *inl;           /* inline data of this slot, or NULL: not inline */
    bool answered;       /* READ and atomics: all data is here */
    uint64_t got;        /* READ: bytes that have come */
    bool ghost;          /* a copy of its data lands again later */
    long ghost_ms;
    unsigned int next_rule; /* after having been held: where the rules go on */
    int lose_ack;           /* answers of this many transmissions are lost */
    int forced;             /* it fails with this status when its turn comes */
};

struct sv_rwqe {
    uint64_t wr_id;
    int num_sge;
    struct ibv_sge *sge;
};

struct sv_qp {
    struct ibv_qp ibv;
    struct ibv_qp_init_attr init;
    struct ibv_qp_attr attr;
    unsigned int serial; /* order of creation in this process, from 0 */
    int dead;            /* 1: nothing reaches it or leaves it; 2: and its timers stand still */
    bool taken;
    uint64_t born;      /* as of a region */
    struct sv_qp *lost; /* the next one that its program cannot free any more */
    uint32_t events_given;
    struct sv_stats stats;
    char *slab; /* memory of the two queues' scatter lists and inline data */

    /* requester: request number n is sq[n % sq_cap] */
    struct sv_wqe *sq;
    uint32_t sq_cap;
    uint64_t sq_free; /* oldest whose slot is still taken */
    uint64_t sq_una;  /* oldest not completed */
    uint64_t sq_next; /* next to transmit, from byte sq_off on */
    uint64_t sq_off;
    uint64_t sq_tail;    /* next to be posted */
    uint64_t in_flight;  /* bytes in flight */
    unsigned int rd_out; /* READs and atomics in flight */
    int retry_left, rnr_left;
    uint64_t timer;      /* ns, 0: not armed */
    uint64_t rnr_until;  /* ns, 0: not waiting */
    uint64_t hold_until; /* ns, 0: not held by a fault rule */
    uint64_t hold_msgs;  /* total of messages after which a held QP goes on */

    /* responder */
    struct sv_rwqe *rq;
    uint32_t rq_cap;
    uint64_t rq_head, rq_tail, rq_free;
    uint64_t r_msn, r_off; /* what is expected next */
    bool r_nak_sent;
    struct sv_rwqe *r_cur; /* receive that is being filled */
    uint64_t r_cur_index;
    bool r_est; /* COMM_EST was raised */
    struct {
        uint64_t msn, value;
    } atomic_log[SV_ATOMIC_LOG];
};

enum sv_ptype {
    SV_P_REQ = 1,
    SV_P_ACK,
    SV_P_NAK,
    SV_P_RNR,
    SV_P_SEQ,
    SV_P_READ,
    SV_P_ATOMIC,
    SV_P_GHOST,
    SV_P_CTL,
    SV_P_REPLY
};

struct sv_hdr {
    uint32_t magic;
    uint16_t type;  /* enum sv_ptype */
    uint8_t opcode; /* enum ibv_wr_opcode */
    uint8_t last;   /* last piece of the message */
    uint32_t src_qpn, dst_qpn;
    uint64_t msn, off, total;
    uint32_t seg;  /* bytes of data behind the header; for a READ request: bytes requested */
    uint32_t data; /* bytes that really follow */
    uint64_t raddr, compare, swap;
    uint32_t rkey, imm;
    uint32_t psn; /* where both ends' numbering starts */
    uint32_t gid_type;
    uint32_t status; /* NAK: enum ibv_wc_status for the requester; RNR: timer code */
    uint8_t mtu, solicited, pad[2];
    union ibv_gid sgid, dgid;
};

struct sv_packet {
    struct sv_packet *next;
    size_t sent; /* bytes already written to a socket */
    struct sv_hdr h;
    char payload[];
};

enum sv_action {
    SV_A_FAIL,
    SV_A_STATUS,
    SV_A_DROP,
    SV_A_DROP_ACK,
    SV_A_DELAY,
    SV_A_DUP,
    SV_A_REORDER,
    SV_A_DIE,
    SV_A_DO,
    SV_A_BLOCK
};

struct sv_rule {
    char name[32];
    enum sv_action action;
    char call[32];
    int dev, opcode, qp; /* -1: any */
    long qpn;
    uint64_t min_len;
    uint64_t nth, count, every;
    double prob;
    int err, status;
    long ms, hold;
    int mode;
    char command[160];
    int64_t seen, fired;
};

struct sv_fabric {
    pthread_mutex_t lock;
    pthread_cond_t acked; /* an event was acknowledged */
    bool service_waits;   /* atomic */
    bool ready;
    struct sv_profile p;
    struct sv_dev dev[SV_DEV_MAX];
    struct sv_ctx *ctxs;
    struct sv_pd *pds;
    struct sv_cq *cqs;
    struct sv_qp *qp[SV_QP_MAX];
    unsigned int qp_next, qp_serial, qp_count;
    uint64_t born;
    struct sv_mr **mr;
    uint32_t mr_cap, mr_next, mr_count;
    uint64_t pinned;
    struct sv_stats total;
    struct sv_rule rule[SV_RULE_MAX];
    unsigned int rules;
    uint64_t rng;
    uint64_t messages; /* requests transmitted, all QPs */
    unsigned int slot;
    char dir[80];
    char sysfs[160];
    uint64_t ghosts_landed, ghosts_refused;
    bool loading;            /* a configuration is being read: sysfs waits for its end */
    bool remote;             /* what is being executed came from another process */
    unsigned int leaked;     /* objects alive when their device was closed */
    struct sv_qp *lost;      /* of them, of devices that were taken away */
    unsigned int held;       /* QPs held by a rule until enough messages have passed */
    pthread_cond_t released; /* the command `release` */
    uint64_t releases;
    unsigned int blocked;    /* calls that a rule lets wait for that */
    uint64_t interrupted;    /* commands that a signal has ended */
    struct sv_held *relaxed; /* newest first, see sv_relaxed.c */
    uint64_t relaxed_held;   /* how many pieces there have been */
    uint64_t overlaps;       /* calls that create a QP while one is destroyed, or the reverse */
};
extern struct sv_fabric sv;

/* sv_main.c */
void sv_lock(void);       /* takes the lock; sets the fabric up on first use */
void sv_lock_first(void); /* for the service thread */
void sv_unlock(void);
void sv_unlock_ring(bool doorbell); /* and keeps the caller for the time of a doorbell */
uint64_t sv_now(void);              /* ns, monotonic */
uint32_t sv_rand(void);
bool sv_queue_open(struct sv_queue *q);
void sv_queue_close(struct sv_queue *q);
void sv_queue_put(struct sv_queue *q, const struct sv_event *ev);
void sv_queue_purge(struct sv_queue *q, bool (*match)(const struct sv_event *, void *), void *arg);
void sv_count(struct sv_ctx *ctx, size_t field, uint64_t n, bool doorbell);

/* sv_config.c */
int sv_profile_by_name(struct sv_profile *p, const char *name);
int sv_profile_set(struct sv_profile *p, const char *key, const char *value);
int sv_load_config(const char *text); /* text NULL: what the environment says */

/* sv_dev.c */
struct sv_ctx *sv_ctx_of(struct ibv_context *ctx);
int sv_ctx_check(struct sv_ctx *c);      /* EINVAL: of a parent, EIO: dead device */
int sv_ctx_check_data(struct sv_ctx *c); /* of a call without the kernel */
struct sv_dev *sv_dev_by_name(const char *name);
void sv_devices_build(void);
void sv_raise(struct sv_ctx *ctx, enum ibv_event_type type, void *element, int port);
void sv_raise_dev(struct sv_dev *dev, enum ibv_event_type type, int port);
void sv_port_set(struct sv_dev *dev, int port, bool up);
void sv_gid_set(struct sv_dev *dev, int port, int index, const struct sv_gid *gid);
void sv_dev_fatal(struct sv_dev *dev, bool gone);
void sv_dev_remove(struct sv_dev *dev, uint64_t ns);
uint64_t sv_dev_timers(uint64_t now); /* as sv_qp_timers */
/* Makes a failed device available again for new contexts; other: with another GUID. */
void sv_dev_renew(struct sv_dev *dev, bool other);
bool sv_ctx_is_dead(const struct sv_ctx *c);
bool sv_gid_v4(const union ibv_gid *gid);

/* sv_fork.c: what a forked child does to the objects of its parent */
enum sv_take {
    SV_TAKE_NOTHING, /* a call that is refused in the child, but real hardware would obey */
    SV_TAKE_CTX,
    SV_TAKE_PD,
    SV_TAKE_MR,
    SV_TAKE_CQ,
    SV_TAKE_QP,
    SV_TAKE_QP_STATE, /* it ends in the error state */
};
struct sv_shared *sv_shared_own(void);
void sv_shared_forked(void);
uint32_t sv_shared_uses(void);
bool sv_inherited(const struct sv_ctx *c);
/* Takes an object that a child has inherited away from its owner. */
void sv_take(const struct sv_ctx *c, enum sv_take kind, void *object);
void sv_obey_children(void); /* at every entry */

/* sv_sysfs.c */
void sv_sysfs_refresh(const struct sv_dev *dev, int port, int gid);

/* sv_obj.c */
void sv_cq_overrun(struct sv_cq *cq); /* CQ_ERR, and its queue pairs fail */
void sv_cq_add(struct sv_cq *cq, struct sv_qp *qp, const struct ibv_wc *wc, bool send,
               uint64_t index, bool solicited);
void sv_cq_forget(struct sv_cq *cq, struct sv_qp *qp);
int sv_poll_cq(struct ibv_cq *cq, int n, struct ibv_wc *wc);
int sv_req_notify_cq(struct ibv_cq *cq, int solicited_only);

/* sv_mr.c: key to memory. NULL when key, PD, range or access does not fit. */
char *sv_mr_local(struct sv_qp *qp, const struct ibv_sge *sge, bool write);
char *sv_mr_remote(struct sv_qp *qp, uint32_t rkey, uint64_t addr, uint64_t len, int access);
const struct sv_mr *sv_mr_by_rkey(uint32_t rkey); /* NULL: none */

/* sv_relaxed.c */
/* Handles a piece of a WRITE for memory of mr. True if it is held back; false if it must be
 * placed now. */
bool sv_relaxed_hold(const struct sv_qp *qp, const struct sv_mr *mr, char *to, const char *data,
                     size_t len);
void sv_relaxed_completion(const struct sv_qp *qp); /* of a receive of qp: before it */
void sv_relaxed_read(const struct sv_qp *qp, const struct sv_mr *mr); /* READ from mr: before it */
void sv_relaxed_qp_ends(const struct sv_qp *qp);                      /* to ERR, RESET, destroyed */
void sv_relaxed_mr_ends(const struct sv_mr *mr);
void sv_relaxed_release(void); /* the command `release` */

/* sv_cuda.c, with `set cuda 1`: memory of GPUs. Sizes in bytes; 0 or an errno. */
bool sv_cuda_is_device(const void *addr, size_t len); /* some of it is */
int sv_cuda_check_dmabuf(int fd, uint64_t offset, size_t len);
int sv_cuda_add(const void *addr, size_t len); /* a region: from now on put and get know it */
void sv_cuda_remove(const void *addr, size_t len);
bool sv_cuda_put(void *dst, const void *src, size_t len); /* false: not in such a region */
bool sv_cuda_get(void *dst, const void *src, size_t len);

/* sv_qp.c */
struct sv_qp *sv_qp_find(uint32_t qpn);
void sv_qp_error(struct sv_qp *qp); /* to ERR: everything posted is flushed */
int sv_post_send(struct ibv_qp *qp, struct ibv_send_wr *wr, struct ibv_send_wr **bad);
int sv_post_recv(struct ibv_qp *qp, struct ibv_recv_wr *wr, struct ibv_recv_wr **bad);

/* sv_req.c, sv_resp.c: the two halves of an RC connection */
void sv_qp_transmit(struct sv_qp *qp);
void sv_on_answer(const struct sv_packet *p);
void sv_on_request(const struct sv_packet *p);
uint64_t sv_qp_timers(struct sv_qp *qp,
                      uint64_t now); /* runs what is due; when to come again, 0 never */
struct sv_packet *sv_packet_new(struct sv_qp *qp, enum sv_ptype type, size_t data);
bool sv_path_ok(struct sv_qp *qp, const struct sv_hdr *h); /* may this packet reach this QP? */
const struct sv_gid *sv_qp_sgid(struct sv_qp *qp);
void sv_send_complete(struct sv_qp *qp, enum ibv_wc_status status);
void sv_recv_complete(struct sv_qp *qp, struct sv_rwqe *r, uint64_t index, struct ibv_wc *wc,
                      bool solicited);
int sv_scatter(struct sv_qp *qp, const struct ibv_sge *sge, int n, uint64_t off, const char *src,
               size_t len);

/* sv_link.c */
int sv_link_start(void); /* slot, socket, service thread; counted by open devices */
void sv_link_stop(void);
void sv_link_forked(void);
void sv_send_packet(struct sv_packet *p);
void sv_run(void);         /* handles what has been queued for this process */
void sv_wake(uint64_t at); /* the service thread must look again at this time (0: now) */
void sv_ghost(const struct sv_packet *p, uint64_t at); /* a copy of it goes out at this time */
void sv_release(void);   /* all held QPs go on, all ghosts go out, now */
void sv_timers(void);    /* what is due by the clock */
void sv_life_lock(void); /* around opening and closing a device, before sv_lock */
void sv_life_unlock(void);

/* sv_fault.c */
int sv_rule_add(const char *line, char *reply, size_t size);
/* Applies the rules for a call, then waits for as long as it takes as a command of the device.
 * The lock is free meanwhile. Returns 0 or an errno. */
int sv_fault_call(const char *call, struct sv_dev *dev, struct sv_qp *qp);
bool sv_fault_message(struct sv_qp *qp, struct sv_wqe *w,
                      bool *drop); /* false: stop transmitting */
int sv_status_by_name(const char *name);
int sv_errno_by_name(const char *name);
const char *sv_status_name(unsigned int status);

/* sv_ctl.c */
int sv_command_locked(const char *line, char *reply, size_t size);

#endif
