/* SPDX-FileCopyrightText: the nccl-net-pvrdma authors
 * SPDX-License-Identifier: Apache-2.0 */
/* hooks.c: completes QEMU 7.2's device by diverting functions of its RDMA code. Debian builds QEMU
 * with modules, so these functions are in its dynamic symbol table. Stock QEMU sends everything as
 * a plain SEND and reports neither immediate data nor events. The hooks read and write the missing
 * fields in the guest's own structures.
 *
 * Facts of layout: QEMU 7.2 hw/rdma/vmw/{pvrdma.h,pvrdma_dev_ring.h,pvrdma_cmd.c,pvrdma_main.c},
 * hw/rdma/rdma_rm.c; Linux 6.1 drivers/infiniband/hw/vmw_pvrdma/{pvrdma_dev_api.h,pvrdma_ring.h}.
 * All diverted functions run under QEMU's big lock. */
#define _GNU_SOURCE
#include "pvstand.h"

#include <dlfcn.h>
#include <rdma/vmw_pvrdma-abi.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

enum { PAGE = 4096 };

/* Command codes of pvrdma_dev_api.h. Offsets in their responses count from the end of the 16-byte header. */
enum { CMD_QUERY_PORT = 0, CMD_CREATE_MR = 4 };
enum { COMMAND_CODE_AT = 8, MR_LENGTH_AT = 24, MR_CHUNKS_AT = 52, RESPONSE_HEADER = 16 };
enum { PORT_MAX_MSG_SZ_WORD = 5, PORT_WIDTH_BYTE = 43, PORT_SPEED_BYTE = 44, MR_RKEY_WORD = 2 };

void (*stand_bql_lock)(const char *file, int line);
void (*stand_bql_unlock)(void);
bool (*stand_bql_held)(void);
static void (*msix_notify)(void *pci, unsigned vector);

/* QEMU's PvrdmaRing. */
struct ring {
    char name[32];
    void *pci;
    uint32_t max_elems;
    size_t elem_size;
    volatile int32_t *state; /* producer's counter, consumer's counter */
    int npages;
    void **pages;
};

/* struct pvrdma_device_caps and the part of struct pvrdma_device_shared_region before it. */
struct device_caps {
    uint64_t fw_ver, node_guid, sys_image_guid, max_mr_size, page_size_cap, atomic_arg_sizes;
    uint32_t ex_comp_mask[4], vendor_id, vendor_part_id, hw_ver, max_qp, max_qp_wr,
        device_cap_flags;
    uint32_t max_sge, max_sge_rd, max_cq, max_cqe, max_mr, max_pd, max_qp_rd_atom, max_ee_rd_atom;
    uint32_t max_res_rd_atom, max_qp_init_rd_atom, unused1[4], unused2[2], unused3[3], max_ah;
    uint32_t unused4[2], max_srq, max_srq_wr, max_srq_sge, max_uar, gid_tbl_len;
    uint16_t max_pkeys;
    uint8_t local_ca_ack_delay, phys_port_cnt, mode, atomic_ops, bmme_flags, gid_types;
    uint32_t max_fast_reg_page_list_len;
};

struct shared_region {
    uint32_t driver_version, pad;
    uint64_t gos_info, command, response, rings[4], uar;
    struct device_caps caps;
};

static struct shared_region *shared;
static uint8_t *command, *response;
static bool caps_done;
static struct ring *async_ring;

static void *(*qemu_dma_map)(void *, uint64_t, uint64_t);
static int (*qemu_create_mr)(void *, void *, void *, size_t, uint64_t, int);
static int (*qemu_exec_cmd)(void *);
static int (*qemu_ring_init)(struct ring *, const char *, void *, void *, uint32_t, size_t, void *,
                             uint32_t);
static void *(*qemu_next_write)(struct ring *);
static void (*qemu_write_inc)(struct ring *);
static void (*qemu_notify_cq)(void *, uint32_t, bool);
static void *(*qemu_get_cq)(void *, uint32_t);
static int (*qemu_modify_qp)(void *, void *, uint32_t, uint32_t, uint8_t, void *, uint32_t, int,
                             uint32_t, uint32_t, uint32_t);
static void (*qemu_qp_send)(void *, uint32_t);
static void (*qemu_qp_recv)(void *, uint32_t);
static void (*qemu_srq_recv)(void *, uint32_t);
static void (*qemu_cq_poll)(void *, uint32_t);

/* -- set-up of the device ---------------------------------------------------------------------- */

/* Recognises the shared region by its size, then the command and
 * response slots by their addresses. */
static void *dma_map(void *pci, uint64_t addr, uint64_t len)
{
    void *p = qemu_dma_map(pci, addr, len);

    if (p && len == sizeof(struct shared_region)) {
        shared = p;
        command = response = NULL;
        caps_done = false;
        stand_say("shared region found");
    } else if (p && shared && addr == shared->command && !command) {
        command = p;
    } else if (p && shared && addr == shared->response && !response) {
        response = p;
    }
    return p;
}

/* The length of the region being registered if QEMU was given another one, else 0. */
static uint64_t true_length;

/* QEMU refuses an unaligned region that touches one page more than its length in pages. So QEMU is given the length of
 * all pages, and the stand-in keeps the true length for its checks. */
static void round_length(uint8_t *create)
{
    uint64_t length;
    uint32_t chunks;

    memcpy(&length, create + MR_LENGTH_AT, sizeof length);
    memcpy(&chunks, create + MR_CHUNKS_AT, sizeof chunks);
    true_length = 0;
    if (chunks && (uint64_t)chunks * PAGE > (length + PAGE - 1) / PAGE * PAGE) {
        true_length = length;
        length = (uint64_t)chunks * PAGE;
        memcpy(create + MR_LENGTH_AT, &length, sizeof length);
    }
}

static int create_mr(void *mr, void *pd, void *addr, size_t len, uint64_t guest_start, int access)
{
    int rc;

    stand_guest_start = guest_start;
    if (true_length)
        len = true_length;
    rc = qemu_create_mr(mr, pd, addr, len, guest_start, access);
    stand_guest_start = 0;
    return rc;
}

static void correct_caps(struct device_caps *caps)
{
    caps->max_qp_rd_atom = caps->max_qp_init_rd_atom = 16;
    caps->atomic_ops = 3; /* compare-and-swap, fetch-and-add */
    caps->page_size_cap = 0xfffff000;
    caps->vendor_id = 0x15ad;
    caps->max_sge_rd = caps->max_sge;
}

static int exec_cmd(void *dev)
{
    uint32_t code = UINT32_MAX;
    int rc;

    if (shared && !caps_done) {
        caps_done = true;
        correct_caps(&shared->caps);
    }
    if (command)
        memcpy(&code, command + COMMAND_CODE_AT, sizeof code);
    if (code == CMD_CREATE_MR)
        round_length(command);
    stand_last_key = 0;
    rc = qemu_exec_cmd(dev);
    if (response && !rc) {
        uint8_t *bytes = response + RESPONSE_HEADER;
        uint32_t *words = (uint32_t *)bytes;

        if (code == CMD_QUERY_PORT) {
            words[PORT_MAX_MSG_SZ_WORD] = 0x40000000;
            bytes[PORT_WIDTH_BYTE] = 2;
            bytes[PORT_SPEED_BYTE] = 16;
        }
        if (code == CMD_CREATE_MR && stand_last_key)
            words[MR_RKEY_WORD] = stand_last_key;
    }
    return rc;
}

/* Stock QEMU does not pass ERR and RESET to the backend, so that nothing would be flushed. */
static int modify_qp(void *resources, void *backend, uint32_t qpn, uint32_t mask,
                     uint8_t sgid_index, void *dgid, uint32_t dest_qpn, int state, uint32_t qkey,
                     uint32_t rq_psn, uint32_t sq_psn)
{
    int rc = qemu_modify_qp(resources, backend, qpn, mask, sgid_index, dgid, dest_qpn, state, qkey,
                            rq_psn, sq_psn);
    struct qp *q = qpn < MAX_QPN ? stand_qps[qpn] : NULL;

    if (!rc && (mask & IBV_QP_STATE) && q && (state == IBV_QPS_ERR || state == IBV_QPS_RESET)) {
        pthread_mutex_lock(&stand_lock);
        stand_flush(q);
        q->state = state;
        pthread_mutex_unlock(&stand_lock);
    }
    return rc;
}

/* -- completions ------------------------------------------------------------------------------- */

/* QEMU queues a notification for every completion, requested or not. The guest would get many stale events with the
 * first interrupt, so only those of an armed queue pass. */
static bool cq_is_armed[65536];
static __thread uint16_t current_cq;

static void notify_cq(void *resources, uint32_t cq, bool notify)
{
    (void)notify; /* QEMU reads it from the wrong bit of the doorbell */
    stand_count_doorbell(DOORBELL_ARM, cq);
    qemu_notify_cq(resources, cq, true);
    cq_is_armed[cq & 0xffff] = true;
}

static void *get_cq(void *resources, uint32_t cq)
{
    current_cq = cq & 0xffff;
    return qemu_get_cq(resources, cq);
}

static struct fix *next_fix(const struct ring *r)
{
    bool of_cq = r->elem_size == sizeof(struct pvrdma_cqe);

    return of_cq && stand_polled_next < stand_polled_n ? &stand_polled[stand_polled_next] : NULL;
}

static void *next_write(struct ring *r)
{
    struct fix *fix = next_fix(r);

    if (r->elem_size == sizeof(uint32_t)) { /* the ring of completion notifications */
        if (!cq_is_armed[current_cq])
            return NULL;
        cq_is_armed[current_cq] = false;
    }
    if (fix && fix->silent) {
        stand_polled_next++;
        return NULL;
    }
    return qemu_next_write(r);
}

static void write_inc(struct ring *r)
{
    struct fix *fix = next_fix(r);

    if (fix) {
        uint32_t i = r->state[0] & (r->max_elems - 1);
        size_t at = i * r->elem_size;
        struct pvrdma_cqe *entry = (void *)((char *)r->pages[at / PAGE] + at % PAGE);

        if (entry->wr_id == fix->guest_wr_id) {
            entry->opcode = fix->opcode;
            entry->imm_data = fix->imm;
            entry->wc_flags |= fix->wc_flags;
            stand_polled_next++;
        }
    }
    qemu_write_inc(r);
}

/* -- asynchronous events ----------------------------------------------------------------------- */

static int ring_init(struct ring *r, const char *name, void *pci, void *state, uint32_t n,
                     size_t size, void *table, uint32_t npages)
{
    int rc = qemu_ring_init(r, name, pci, state, n, size, table, npages);

    if (!rc && !strcmp(name, "dev_async"))
        async_ring = r;
    return rc;
}

/* The driver's ring has slots of eight bytes, and its indices run to twice the number of slots (pvrdma_ring.h). */
bool stand_raise_event(uint32_t type, uint32_t info)
{
    enum { ASYNC_VECTOR = 1, SLOT = 8 };
    struct ring *r;

    stand_bql_lock(__FILE__, __LINE__);
    r = async_ring && async_ring->npages ? async_ring : NULL;
    if (r) {
        uint32_t slots = r->npages * (PAGE / SLOT), i = r->state[0];
        uint32_t at = (i & (slots - 1)) * SLOT;
        uint32_t *entry = (uint32_t *)((char *)r->pages[at / PAGE] + at % PAGE);

        entry[0] = type;
        entry[1] = info;
        r->state[0] = (i + 1) & (2 * slots - 1);
        msix_notify(r->pci, ASYNC_VECTOR);
    }
    stand_bql_unlock();
    return r;
}

/* -- doorbells: each is one write of the guest to its doorbell page ---------------------------- */

static void qp_send(void *dev, uint32_t qp)
{
    stand_count_doorbell(DOORBELL_SEND, qp);
    qemu_qp_send(dev, qp);
}

static void qp_recv(void *dev, uint32_t qp)
{
    stand_count_doorbell(DOORBELL_RECV, qp);
    qemu_qp_recv(dev, qp);
}

static void srq_recv(void *dev, uint32_t srq)
{
    stand_count_doorbell(DOORBELL_SRQ, srq);
    qemu_srq_recv(dev, srq);
}

static void cq_poll(void *resources, uint32_t cq)
{
    stand_count_doorbell(DOORBELL_POLL, cq);
    qemu_cq_poll(resources, cq);
}

static void need(const char *name, void *function)
{
    void *found = dlsym(RTLD_DEFAULT, name);

    if (!found) {
        fprintf(stderr, "pvstand: this QEMU does not export %s\n", name);
        exit(1);
    }
    memcpy(function, &found, sizeof found);
}

void stand_install_hooks(void)
{
    need("qemu_mutex_lock_iothread_impl", &stand_bql_lock);
    need("qemu_mutex_unlock_iothread", &stand_bql_unlock);
    need("qemu_mutex_iothread_locked", &stand_bql_held);
    need("msix_notify", &msix_notify);
    stand_divert("rdma_pci_dma_map", dma_map, &qemu_dma_map);
    stand_divert("rdma_backend_create_mr", create_mr, &qemu_create_mr);
    stand_divert("pvrdma_exec_cmd", exec_cmd, &qemu_exec_cmd);
    stand_divert("pvrdma_ring_next_elem_write", next_write, &qemu_next_write);
    stand_divert("pvrdma_ring_write_inc", write_inc, &qemu_write_inc);
    stand_divert("pvrdma_ring_init", ring_init, &qemu_ring_init);
    stand_divert("rdma_rm_req_notify_cq", notify_cq, &qemu_notify_cq);
    stand_divert("rdma_rm_get_cq", get_cq, &qemu_get_cq);
    stand_divert("rdma_rm_modify_qp", modify_qp, &qemu_modify_qp);
    stand_divert("pvrdma_qp_send", qp_send, &qemu_qp_send);
    stand_divert("pvrdma_qp_recv", qp_recv, &qemu_qp_recv);
    stand_divert("pvrdma_srq_recv", srq_recv, &qemu_srq_recv);
    stand_divert("pvrdma_cq_poll", cq_poll, &qemu_cq_poll);
}
