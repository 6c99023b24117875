/* SPDX-FileCopyrightText: the nccl-net-pvrdma authors
 * SPDX-License-Identifier: Apache-2.0 */
/* The machine as its files describe it: PCI tree, network and RDMA devices, GPUs, modules, guest
 * state.
 *
 * Everything is read below a replaceable filesystem root ("/", an unpacked capture, or the tar
 * written by pvn_topo_gather) and copied into one struct pvn_topo that owns all of it. Nothing here
 * calls NCCL, CUDA, verbs or any library but libc, so the plugin can link it where none of them is
 * installed.
 *
 * Rules that hold for the whole model:
 * - A fact that could not be read is unknown, and says so: PVN_TOPO_UNKNOWN for a number, "" for a
 *   text, PVN_TOPO_TRI_UNKNOWN for a yes/no, PVN_TOPO_CAP_NOT_READABLE for config space that needs
 *   root. No default stands in for a fact.
 * - Objects refer to each other by index into the arrays of one struct pvn_topo; -1 is "none".
 * - Arrays are sorted: PCI functions by address (invented ones behind them), everything else by
 *   name or number.
 * - A struct pvn_topo is constant after load and merge, so any number of threads may read it. */
#ifndef PVN_TOPO_H
#define PVN_TOPO_H

#include <limits.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#ifdef __cplusplus
extern "C" {
#endif

/* A number that the machine does not report. */
#define PVN_TOPO_UNKNOWN INT_MIN

/* Length of the texts of the model, including the NUL. Longer ones are cut. */
enum {
    PVN_TOPO_BDF_MAX = 20,   /* "ffffffff:ff:1f.7" is 16 */
    PVN_TOPO_NAME_MAX = 64,  /* device, driver and module names */
    PVN_TOPO_TEXT_MAX = 128, /* DMI texts, versions, model names */
};

/* The reason why a call failed. text is one sentence that names the value and, if there is one, the
 * remedy. */
struct pvn_topo_err {
    char text[512];
};

enum pvn_topo_tri {
    PVN_TOPO_TRI_UNKNOWN = 0,
    PVN_TOPO_TRI_NO,
    PVN_TOPO_TRI_YES,
};

/* ----------------------------------------------------------------------------
 * PCI */

/* The place of a function: from the PCI Express capability if config space could be read, else from
 * its position in the tree (kind_from_config says which). */
enum pvn_topo_pci_kind {
    PVN_TOPO_PCI_UNKNOWN = 0, /* a path component without files of its own */
    PVN_TOPO_PCI_ENDPOINT,    /* any function that is no bridge */
    PVN_TOPO_PCI_HOST_BRIDGE, /* class 0600: the root complex's own function on the root bus */
    PVN_TOPO_PCI_ROOT_PORT,   /* bridge on a root bus */
    PVN_TOPO_PCI_SWITCH_UP,   /* switch port towards the root */
    PVN_TOPO_PCI_SWITCH_DOWN, /* switch port towards the device */
    PVN_TOPO_PCI_BRIDGE,      /* PCI-to-PCI or PCIe-to-PCI bridge that is no switch port */
};

enum pvn_topo_pci_flags {
    PVN_TOPO_PCI_GAP = 1 << 0, /* named by the path of a device below, without files of its own */
    PVN_TOPO_PCI_NO_PATH = 1 << 1, /* its place in the tree is unknown: the link did not resolve */
    /* made from hints or a host dump; the guest has no such function */
    PVN_TOPO_PCI_INVENTED = 1 << 2,
    PVN_TOPO_PCI_MOVED = 1 << 3, /* hints or a host dump changed parent; see seen_parent */
    /* hints or a host dump changed numa; numa_text is the old one */
    PVN_TOPO_PCI_NUMA_HINTED = 1 << 4,
    /* the link's maximum is the state that another tool saw; the real maximum is unknown */
    PVN_TOPO_PCI_LINK_NOW = 1 << 5,
};

/* The presence of a fact of config space. */
enum pvn_topo_cap {
    PVN_TOPO_CAP_UNKNOWN = 0,  /* no config file */
    PVN_TOPO_CAP_NOT_READABLE, /* the file ended before the capability: not root */
    PVN_TOPO_CAP_ABSENT,       /* looked for, not there */
    PVN_TOPO_CAP_PRESENT,
};

/* ACS bits, PCI Express Base Specification 6.0 section 7.7.11 (capability and control alike). */
enum pvn_topo_acs_bits {
    PVN_TOPO_ACS_SV = 0x01, /* source validation */
    PVN_TOPO_ACS_TB = 0x02, /* translation blocking */
    PVN_TOPO_ACS_RR = 0x04, /* P2P request redirect: peer traffic goes up to the root complex */
    PVN_TOPO_ACS_CR = 0x08, /* P2P completion redirect */
    PVN_TOPO_ACS_UF = 0x10, /* upstream forwarding */
    PVN_TOPO_ACS_EC = 0x20, /* P2P egress control */
    PVN_TOPO_ACS_DT = 0x40, /* direct translated P2P: translated (ATS) requests may go straight */
};

struct pvn_topo_pci_config {
    int bytes;     /* how far config space is known to be readable: 0, 64, 256 or 4096 */
    bool all_ones; /* all bytes read as ones: the device is off, lost or asleep */
    /* Express capability; the fields down to lnk_width need PVN_TOPO_CAP_PRESENT */
    enum pvn_topo_cap pcie;
    int port_type;         /* device/port type, 0..15 */
    int mps;               /* max payload size in use, bytes (DevCtl) */
    int mps_max;           /* max payload size supported, bytes (DevCap) */
    int mrrs;              /* max read request size, bytes */
    bool relaxed_ordering; /* DevCtl bit 4: the device may set the attribute on its requests */
    int lnk_speed_mts;     /* LnkSta current speed, MT/s, or PVN_TOPO_UNKNOWN */
    int lnk_width;         /* LnkSta negotiated width, lanes, or PVN_TOPO_UNKNOWN */
    enum pvn_topo_cap acs;
    uint16_t acs_cap, acs_ctl; /* valid with acs == PVN_TOPO_CAP_PRESENT */
    enum pvn_topo_cap ats;
    bool ats_enabled;      /* valid with ats == PVN_TOPO_CAP_PRESENT */
    enum pvn_topo_cap dsn; /* Device Serial Number, used to match guest and host devices */
    uint64_t serial;       /* valid with dsn == PVN_TOPO_CAP_PRESENT */
};

struct pvn_topo_pci_link {
    /* MT/s per lane (2500, 5000, 8000, 16000, 32000, 64000) or PVN_TOPO_UNKNOWN; now and at
     * most. */
    int speed_mts, speed_max_mts;
    /* Lanes 0..32 (0: no link now) or PVN_TOPO_UNKNOWN. */
    int width, width_max;
    /* As sysfs wrote them, "" if absent: NCCL compares texts. */
    char speed_text[32], speed_max_text[32];
    /* width_max as sysfs wrote it: 255 for an unknown width, which NCCL takes for a number of
     * lanes; PVN_TOPO_UNKNOWN if there is no number. */
    int width_max_read;
};

struct pvn_topo_pci {
    uint32_t domain; /* up to 32 bits: VMD and some hypervisors go beyond 16 */
    uint8_t bus, dev, fn;
    char bdf[PVN_TOPO_BDF_MAX]; /* as sysfs names it, lower case, 4 to 8 domain digits */
    char *path;     /* canonical sysfs path without the root ("/sys/devices/..."), or NULL */
    unsigned flags; /* enum pvn_topo_pci_flags */
    enum pvn_topo_pci_kind kind;
    bool kind_from_config;
    int parent;      /* index of the bridge above; -1 on a root bus */
    int seen_parent; /* the parent that the machine itself shows (equal without a merge) */
    int root;        /* index in roots; -1 with PVN_TOPO_PCI_NO_PATH */
    int depth;       /* bridges above it */
    int class_code;  /* 24 bits, or PVN_TOPO_UNKNOWN, as the next four (16 bits) */
    int vendor, device, subvendor, subdevice;
    int revision;                   /* 8 bits or PVN_TOPO_UNKNOWN */
    char driver[PVN_TOPO_NAME_MAX]; /* "" when none is bound (see driver_bound) or unknown */
    enum pvn_topo_tri driver_bound; /* UNKNOWN if the function has no files */
    int numa;           /* as written, may be -1; PVN_TOPO_UNKNOWN if there is no file */
    char numa_text[16]; /* the text itself: NCCL distinguishes CPUs by it */
    char local_cpulist[PVN_TOPO_TEXT_MAX]; /* "0-15,32-47", "" unknown or too long */
    int iommu_group; /* number, -1: function is in no group, PVN_TOPO_UNKNOWN */
    struct pvn_topo_pci_link link;
    struct pvn_topo_pci_config config;
    int physfn;                 /* SR-IOV: index of the physical function; -1 if this is no VF */
    int num_vfs, total_vfs;     /* of a physical function; PVN_TOPO_UNKNOWN without SR-IOV */
    uint64_t bar_size[6];       /* bytes, 0 for none or unknown */
    int secondary, subordinate; /* bus numbers below a bridge, or PVN_TOPO_UNKNOWN */
};

/* A virtual link between two upstream ports of Broadcom switches, as the switches' driver shows it.
 * Each direction is a link of its own. */
struct pvn_topo_switch_link {
    int from, to; /* indices in pci */
};

/* A root bus: all functions behind one host bridge. Their paths have pciDDDD:BB. */
struct pvn_topo_root {
    char name[PVN_TOPO_NAME_MAX]; /* "pci0000:17"; invented ones "hint:NAME" */
    uint32_t domain;
    uint8_t bus;
    int via; /* function whose driver made this bus (Intel VMD), or -1 */
    /* The node that all its functions name (it may be -1); PVN_TOPO_UNKNOWN if they differ. */
    int numa;
};

/* ----------------------------------------------------------------------------
 * Network and RDMA */

enum pvn_topo_net_kind {
    PVN_TOPO_NET_OTHER = 0, /* a VRF, for example */
    PVN_TOPO_NET_ETHERNET,  /* has a device below it */
    PVN_TOPO_NET_IPOIB,
    PVN_TOPO_NET_LOOPBACK,
    PVN_TOPO_NET_BOND,
    PVN_TOPO_NET_TEAM,
    PVN_TOPO_NET_BRIDGE, /* Open vSwitch's master of all its ports, too */
    PVN_TOPO_NET_VLAN,
    PVN_TOPO_NET_WIRELESS,
    PVN_TOPO_NET_TUNNEL,  /* tun/tap, gre, vxlan ... */
    PVN_TOPO_NET_VIRTUAL, /* veth, dummy, ifb and whatever else has no device */
};

struct pvn_topo_net {
    char name[PVN_TOPO_NAME_MAX];
    enum pvn_topo_net_kind kind;
    char driver[PVN_TOPO_NAME_MAX];
    int pci;            /* index, or -1 */
    int ifindex;        /* or PVN_TOPO_UNKNOWN */
    int arphrd;         /* ARPHRD_* number, or PVN_TOPO_UNKNOWN */
    int mtu;            /* bytes, or PVN_TOPO_UNKNOWN */
    char operstate[16]; /* "up", "down", ... "" unknown */
    int carrier;      /* 0, 1 or PVN_TOPO_UNKNOWN (an interface that is down does not report it) */
    int speed_mbps;   /* or PVN_TOPO_UNKNOWN (the kernel's -1 as well) */
    int dev_port;     /* port of a multi-port function, or PVN_TOPO_UNKNOWN */
    int master;       /* index of the bond, team, bridge or VRF above, or -1 */
    int lower;        /* index of the interface that a VLAN is on, or -1 */
    int active;       /* of a bond that uses one member at a time: that member's index, or -1 */
    char address[64]; /* hardware address as text */
};

enum pvn_topo_gid_type {
    PVN_TOPO_GID_UNKNOWN = 0,
    PVN_TOPO_GID_IB,      /* "IB/RoCE v1" on an InfiniBand port */
    PVN_TOPO_GID_ROCE_V1, /* "IB/RoCE v1" on an Ethernet port */
    PVN_TOPO_GID_ROCE_V2,
};

struct pvn_topo_gid {
    int index;
    uint8_t raw[16];
    enum pvn_topo_gid_type type;
    char ndev[PVN_TOPO_NAME_MAX]; /* "" if the kernel gives none */
};

enum pvn_topo_link_layer {
    PVN_TOPO_LINK_UNKNOWN = 0,
    PVN_TOPO_LINK_INFINIBAND,
    PVN_TOPO_LINK_ETHERNET,
};

struct pvn_topo_rdma_port {
    int num;   /* from 1 */
    int state; /* IBTA port state 0..5 (4 active), or PVN_TOPO_UNKNOWN */
    char state_text[32];
    char phys_state_text[32];
    int rate_mbps; /* or PVN_TOPO_UNKNOWN */
    char rate_text[32];
    enum pvn_topo_link_layer layer;
    int lid;        /* or PVN_TOPO_UNKNOWN */
    int active_mtu; /* bytes; not in sysfs, so PVN_TOPO_UNKNOWN unless the caller filled it in */
    int netdev;     /* index in nets, or -1 */
    struct pvn_topo_gid *gids; /* entries that are not zero, by index */
    int ngids;
    int gid_table_len; /* entries of the table, zero ones included */
};

enum pvn_topo_rdma_kind {
    PVN_TOPO_RDMA_HW = 0,
    PVN_TOPO_RDMA_PVRDMA, /* VMware paravirtual: 15ad:0820, driver vmw_pvrdma */
    PVN_TOPO_RDMA_SOFT,   /* rxe, siw: no PCI function of its own */
};

struct pvn_topo_rdma {
    char name[PVN_TOPO_NAME_MAX];
    enum pvn_topo_rdma_kind kind;
    char driver[PVN_TOPO_NAME_MAX];
    int pci; /* index, or -1 */
    char fw_ver[PVN_TOPO_NAME_MAX], hca_type[PVN_TOPO_NAME_MAX], board_id[PVN_TOPO_NAME_MAX];
    char node_type[32];                     /* "CA", "RNIC", ... "" unknown */
    char node_guid[24], sys_image_guid[24]; /* "xxxx:xxxx:xxxx:xxxx", "" unknown */
    struct pvn_topo_rdma_port *ports;
    int nports;
};

/* A PVRDMA function and its vmxnet3. The driver needs function 0 of the same slot and does not
 * start without it. Every 15ad:0820 function has an entry, whether its driver is bound or not. */
struct pvn_topo_pvrdma_pair {
    int pci;     /* the 15ad:0820 function */
    int vmxnet3; /* PCI index of function 0 of the slot when it is a vmxnet3, else -1 */
    int netdev;  /* its interface, or -1 */
    int rdma;    /* the RDMA device, or -1 when the driver did not bind */
    /* "" if the pair is complete, else a sentence that names the missing part */
    char problem[256];
};

/* ----------------------------------------------------------------------------
 * GPUs, modules, guest */

enum pvn_topo_gpu_kind {
    PVN_TOPO_GPU_NVIDIA = 0,
    PVN_TOPO_GPU_AMD,
    PVN_TOPO_GPU_INTEL,
    PVN_TOPO_GPU_ACCEL, /* class 0x12xx or 0x0b40: drawn like a GPU */
};

struct pvn_topo_gpu {
    int pci;
    enum pvn_topo_gpu_kind kind;
    char model[PVN_TOPO_TEXT_MAX]; /* /proc/driver/nvidia/gpus/BDF/information, "" unknown */
    char uuid[64];                 /* same file; "" unknown */
    int minor;                     /* /dev/nvidiaN, or PVN_TOPO_UNKNOWN */
    /* NVIDIA's driver lists this GPU in /proc; UNKNOWN without the list. In a container the list
     * has those that the container may use, and sysfs has all. */
    enum pvn_topo_tri listed;
};

struct pvn_topo_module {
    char name[PVN_TOPO_NAME_MAX];
    char version[PVN_TOPO_TEXT_MAX]; /* "" if the module states none */
};

struct pvn_topo_nvidia {
    enum pvn_topo_tri loaded;        /* kernel driver */
    char version[PVN_TOPO_NAME_MAX]; /* "535.104.05" */
    enum pvn_topo_tri open_modules;  /* open kernel modules, which dma-buf export needs */
    enum pvn_topo_tri peermem;       /* nvidia_peermem or nv_peer_mem loaded */
    char peermem_version[PVN_TOPO_TEXT_MAX];
    /* ib_core has the peer-memory patches and a client registered */
    enum pvn_topo_tri memory_peers;
    int topo_check_override; /* NVreg_GrdmaPciTopoCheckOverride, or PVN_TOPO_UNKNOWN */
};

enum pvn_topo_hypervisor {
    PVN_TOPO_HV_UNKNOWN = 0, /* no evidence for or against a guest */
    PVN_TOPO_HV_NONE,        /* CPU flags known, no hypervisor bit, no DMI sign */
    PVN_TOPO_HV_VMWARE,
    PVN_TOPO_HV_KVM,
    PVN_TOPO_HV_HYPERV,
    PVN_TOPO_HV_XEN,
    PVN_TOPO_HV_NITRO,
    PVN_TOPO_HV_GOOGLE,
    PVN_TOPO_HV_OTHER, /* hypervisor bit set, make unknown */
};

struct pvn_topo_guest {
    enum pvn_topo_hypervisor hypervisor;
    char evidence[256];         /* the facts by which it was recognised */
    enum pvn_topo_tri cpu_flag; /* the CPU's hypervisor bit */
    char sys_vendor[PVN_TOPO_TEXT_MAX], product_name[PVN_TOPO_TEXT_MAX],
        bios_vendor[PVN_TOPO_TEXT_MAX], board_vendor[PVN_TOPO_TEXT_MAX],
        board_name[PVN_TOPO_TEXT_MAX], bios_version[PVN_TOPO_TEXT_MAX];
};

/* ----------------------------------------------------------------------------
 * CPUs, NUMA, IOMMU */

struct pvn_topo_numa {
    int id;
    char *cpumap;  /* text of cpumap ("00000000,0000ffff"): NCCL's affinity attribute; never NULL */
    char *cpulist; /* text of cpulist; never NULL */
    bool has_cpus; /* false for nodes that are only memory (GPU memory on POWER9) */
    int *distance; /* SLIT row, one per entry of numas in their order; NULL unknown */
    int ndistance;
};

enum pvn_topo_arch {
    PVN_TOPO_ARCH_UNKNOWN = 0,
    PVN_TOPO_ARCH_X86_64,
    PVN_TOPO_ARCH_ARM64,
    PVN_TOPO_ARCH_PPC64,
    PVN_TOPO_ARCH_OTHER,
};

struct pvn_topo_cpu {
    enum pvn_topo_arch arch;
    char vendor
        [PVN_TOPO_NAME_MAX]; /* "GenuineIntel", "AuthenticAMD", "ARM", "IBM" ..., "" unknown */
    int family, model;       /* as in /proc/cpuinfo (decimal value), or PVN_TOPO_UNKNOWN */
    char model_name[PVN_TOPO_TEXT_MAX];
    int sockets; /* or PVN_TOPO_UNKNOWN */
    int logical; /* logical CPUs listed, or PVN_TOPO_UNKNOWN */
};

struct pvn_topo_iommu {
    enum pvn_topo_tri present;     /* /sys/class/iommu has an entry */
    char names[PVN_TOPO_TEXT_MAX]; /* "dmar0 dmar1" */
    int ngroups;                   /* or PVN_TOPO_UNKNOWN */
};

struct pvn_topo_iommu_group {
    int id;
    char type[32]; /* "DMA", "DMA-FQ", "identity", "blocked"; "" unknown */
};

/* Lists that could not be read, or only in part. Their missing entries are unknown, not absent. */
enum pvn_topo_unread {
    PVN_TOPO_UNREAD_PCI = 1 << 0,
    PVN_TOPO_UNREAD_NETS = 1 << 1,
    PVN_TOPO_UNREAD_RDMAS = 1 << 2,
    PVN_TOPO_UNREAD_NUMAS = 1 << 3,
    PVN_TOPO_UNREAD_MODULES = 1 << 4,
    PVN_TOPO_UNREAD_PROC = 1 << 5,
    /* Lists without which no pairs can be formed. */
    PVN_TOPO_UNREAD_DEVICES = PVN_TOPO_UNREAD_PCI | PVN_TOPO_UNREAD_NETS | PVN_TOPO_UNREAD_RDMAS,
};

/* An input that could not be read as expected: a list, a dangling link, a loop, junk. The model is
 * complete except for the parts that notes name. */
struct pvn_topo_note {
    char where[256];
    char text[256];
};

struct pvn_topo {
    char *source;    /* the root it was read from, as given */
    bool live;       /* it was "/" */
    unsigned merged; /* enum pvn_topo_merged, 0 when only this machine's own files were read */

    struct pvn_topo_pci *pci;
    int npci;
    struct pvn_topo_root *roots;
    int nroots;
    struct pvn_topo_switch_link *switch_links;
    int nswitch_links;
    struct pvn_topo_net *nets;
    int nnets;
    struct pvn_topo_rdma *rdmas;
    int nrdmas;
    struct pvn_topo_pvrdma_pair *pvrdma;
    int npvrdma;
    struct pvn_topo_gpu *gpus;
    int ngpus;
    struct pvn_topo_numa *numas;
    int nnumas;
    struct pvn_topo_module *modules; /* those that this library uses, if loaded */
    int nmodules;
    enum pvn_topo_tri modules_known; /* /sys/module could be listed */
    struct pvn_topo_iommu_group *iommu_groups;
    int niommu_groups;

    struct pvn_topo_nvidia nvidia;
    struct pvn_topo_guest guest;
    struct pvn_topo_cpu cpu;
    struct pvn_topo_iommu iommu;
    char kernel[PVN_TOPO_TEXT_MAX]; /* release, "5.15.0-91-generic", "" unknown */
    char cmdline[512];              /* kernel parameters that concern PCI, IOMMU and NVIDIA only */
    bool memlock_known;             /* /proc/self/limits */
    uint64_t memlock_soft, memlock_hard; /* bytes, UINT64_MAX unlimited */
    bool files_known;                    /* /proc/self/limits, too */
    uint64_t files_soft, files_hard;     /* open files, UINT64_MAX unlimited */

    unsigned unread;             /* enum pvn_topo_unread; each has a note */
    struct pvn_topo_note *notes; /* at most 64; dropped ones are counted */
    int nnotes;
    int notes_dropped;
};

enum pvn_topo_merged {
    PVN_TOPO_MERGED_HINTS = 1 << 0,
    PVN_TOPO_MERGED_HOST = 1 << 1,
    /* at least one device was matched by order alone: warn the user */
    PVN_TOPO_MERGED_ORDER = 1 << 2,
};

enum pvn_topo_load_flags {
    /* do not open config space (all capabilities PVN_TOPO_CAP_UNKNOWN) */
    PVN_TOPO_NO_CONFIG = 1 << 0,
    PVN_TOPO_NO_GIDS = 1 << 1,   /* do not read GID tables */
    PVN_TOPO_FIRST_GID = 1 << 2, /* read entry 0 only: an InfiniBand port's subnet prefix */
    PVN_TOPO_PARTIAL = 1 << 3,   /* made from another tool's output: a list it lacks is no fault */
};

struct pvn_topo_options {
    unsigned flags; /* enum pvn_topo_load_flags */
    /* Directory to use as /sys if the root is a directory; NULL or "/sys": the root's own. */
    const char *sysfs;
};

/* Reads the machine below root, which must be a directory; else like pvn_topo_load. The plugin
 * calls only this function, so it does not link the reader of tar files. */
int pvn_topo_load_dir(const char *root, const struct pvn_topo_options *options,
                      struct pvn_topo **topo, struct pvn_topo_err *err);

/* Reads the machine below root: a directory ("/" for this machine, an unpacked capture) or a tar
 * file from pvn_topo_gather. options may be NULL. *topo is set only on success; pvn_topo_free frees
 * it. Returns 0 or negative errno with the reason in err (never NULL): -ENOENT no such root,
 * -ENOTDIR/-EINVAL not a machine description, -E2BIG more entries than any machine has, -ENOMEM. An
 * unreadable file is no error: its fact is unknown, and a note is added if something was wrong. */
int pvn_topo_load(const char *root, const struct pvn_topo_options *options, struct pvn_topo **topo,
                  struct pvn_topo_err *err);
/* pvn_topo_load from a tar image in memory, which is not kept. */
int pvn_topo_load_tar(const void *image, size_t bytes, const struct pvn_topo_options *options,
                      struct pvn_topo **topo, struct pvn_topo_err *err);
/* NULL is allowed. */
void pvn_topo_free(struct pvn_topo *topo);

/* ----------------------------------------------------------------------------
 * Lookups. Each returns an index, or -1. */

/* "0000:3b:00.0", "3b:00.0" (domain 0), any case, any number of domain digits up to eight. */
int pvn_topo_find_pci(const struct pvn_topo *topo, const char *bdf);
int pvn_topo_find_pci_addr(const struct pvn_topo *topo, uint32_t domain, int bus, int dev, int fn);
/* The last PCI function on a sysfs path: ".../0000:00:03.0/virtio0" gives 0000:00:03.0. */
int pvn_topo_pci_of_path(const struct pvn_topo *topo, const char *path);
int pvn_topo_find_net(const struct pvn_topo *topo, const char *name);
int pvn_topo_find_rdma(const struct pvn_topo *topo, const char *name);
int pvn_topo_find_numa(const struct pvn_topo *topo, int id);
int pvn_topo_gpu_of_pci(const struct pvn_topo *topo, int pci);
int pvn_topo_rdma_of_pci(const struct pvn_topo *topo, int pci);
/* First interface of the function. */
int pvn_topo_net_of_pci(const struct pvn_topo *topo, int pci);
/* A loaded module by name ("-" and "_" are the same). */
int pvn_topo_find_module(const struct pvn_topo *topo, const char *name);

/* Splits "DDDD[DDDD]:BB:DD.F" (or "BB:DD.F"). Returns 0 or -EINVAL. */
int pvn_topo_bdf_parse(const char *text, uint32_t *domain, uint8_t *bus, uint8_t *dev, uint8_t *fn);
/* Writes at least four domain digits. out holds PVN_TOPO_BDF_MAX. */
void pvn_topo_bdf_format(char *out, uint32_t domain, unsigned bus, unsigned dev, unsigned fn);

/* ----------------------------------------------------------------------------
 * Distances in the full tree, with nvidia-smi's names. (NCCL's reduced tree and classes are in
 * nccl_tree.h and are computed from the same parents.) */

enum pvn_topo_smi_class {
    PVN_TOPO_SMI_SELF = 0, /* the same function */
    PVN_TOPO_SMI_PIX,      /* at most one bridge or switch */
    PVN_TOPO_SMI_PXB,      /* several switches, below one root port */
    PVN_TOPO_SMI_PHB,      /* through one host bridge */
    PVN_TOPO_SMI_NODE,     /* between host bridges of one NUMA node */
    PVN_TOPO_SMI_SYS,      /* between NUMA nodes */
    PVN_TOPO_SMI_UNKNOWN,  /* a gap in the tree, or an unknown NUMA node if there are several */
};

/* The source of a distance, which decides how reliable it is. */
enum pvn_topo_trust {
    PVN_TOPO_TRUST_MEASURED = 0, /* bare metal */
    PVN_TOPO_TRUST_PRESENTED,    /* guest: the hypervisor shows this shared switch, real or not */
    /* guest: the hypervisor shows no shared switch, so the real distance is unknown */
    PVN_TOPO_TRUST_HIDDEN,
    PVN_TOPO_TRUST_HINTED, /* from a hints file or the host's dump */
};

struct pvn_topo_distance {
    enum pvn_topo_smi_class smi;  /* PVN_TOPO_SMI_UNKNOWN if trust is PVN_TOPO_TRUST_HIDDEN */
    enum pvn_topo_smi_class seen; /* as the tree shows it, even if trust is PVN_TOPO_TRUST_HIDDEN */
    enum pvn_topo_trust trust;
    int common; /* nearest common bridge (index), or -1 when they meet at a host bridge or above */
    int switches;     /* switches on the path */
    int hops;         /* links on the path inside the PCI trees */
    char reason[256]; /* one sentence */
};

/* Finds the distance between two PCI functions of topo. Every valid pair gets an answer, the same
 * in both directions. */
void pvn_topo_find_distance(const struct pvn_topo *topo, int a, int b,
                            struct pvn_topo_distance *out);
/* True if both are functions of one device. */
bool pvn_topo_same_slot(const struct pvn_topo_pci *a, const struct pvn_topo_pci *b);
/* True if the machine has a GPU and a network function whose distance only the host knows. */
bool pvn_topo_layout_hidden(const struct pvn_topo *topo);
const char *pvn_topo_smi_class_name(enum pvn_topo_smi_class c); /* "PIX" */
const char *pvn_topo_trust_text(enum pvn_topo_trust t);         /* "hidden by the hypervisor" */
const char *pvn_topo_pci_kind_name(enum pvn_topo_pci_kind k);
const char *pvn_topo_hypervisor_name(enum pvn_topo_hypervisor hv);
/* True if a hypervisor was recognised, and it is not PVN_TOPO_HV_NONE/UNKNOWN. */
bool pvn_topo_is_guest(const struct pvn_topo *topo);

/* Link bandwidth in MB/s of raw line rate: speed x width with the coding of the generation (8b/10b
 * to 5 GT/s, 128b/130b to 32 GT/s, 64 GT/s flit mode counted as raw). PVN_TOPO_UNKNOWN if either is
 * unknown. */
int pvn_topo_link_mbytes(int speed_mts, int width);
/* "16.0 GT/s PCIe" for 16000. A static text; "unknown" if this is no PCIe speed. */
const char *pvn_topo_link_speed_name(int speed_mts);

/* ----------------------------------------------------------------------------
 * Hints and host dumps, for guests whose hypervisor hides the tree (topo/capture/hints.c and
 * merge.c) */

/* Applies a hints file (text of len bytes; name is used in errors, "name:LINE: ..."). Format, one
 * statement a line, '#' starts a comment:
 *     pvn-topo-hints 1
 *     switch NAME [in NAME] [node N] [speed "16.0 GT/s PCIe"] [width 16]
 *     device ADDRESS|INTERFACE|RDMA-DEVICE [in NAME] [node N]
 *     device ADDRESS host ADDRESS          (only with a host dump: this device is that one there)
 * Every switch becomes an invented root port (or downstream port of the switch above), an upstream
 * port and one downstream port for each device (domain ffff, PVN_TOPO_PCI_INVENTED). The devices
 * move below it (PVN_TOPO_PCI_MOVED). All functions of a device's slot move together. On error
 * *topo is unchanged. */
int pvn_topo_apply_hints(struct pvn_topo *topo, const char *text, size_t len, const char *name,
                         struct pvn_topo_err *err);

/* Merges the tree of the host into its guest. Devices are matched by the pairs of the hints text
 * (may be NULL), then by PCI serial number, GPU UUID or MAC address, then by ids if exactly one
 * candidate is left on both sides, then by order if the counts agree (PVN_TOPO_MERGED_ORDER).
 * Bridges above a matched device are copied as invented ones. On error *guest is unchanged; -ENOENT
 * if nothing matched. */
int pvn_topo_merge_host(struct pvn_topo *guest, const struct pvn_topo *host, const char *hints,
                        size_t hints_len, const char *hints_name, struct pvn_topo_err *err);

/* Reads the text of `esxcli hardware pci list` as a host description for pvn_topo_merge_host. */
int pvn_topo_load_esxcli(const char *text, size_t len, const char *name, struct pvn_topo **topo,
                         struct pvn_topo_err *err);

/* A change on the host (or in the guest) that helps with a finding. */
struct pvn_topo_remedy {
    const char *id;    /* "hints", "device-group", "allow-p2p", "vnuma", "real-nic", "ats", ... */
    const char *where; /* "host" or "guest" */
    const char *text;  /* the setting and its effect */
    char why[256];     /* the finding that it helps with */
};
/* Fills at most max entries and returns how many remedies there are. 0 on bare metal. */
int pvn_topo_guest_remedies(const struct pvn_topo *topo, struct pvn_topo_remedy *out, int max);

/* ----------------------------------------------------------------------------
 * Checks (topo/check*.c) */

enum pvn_topo_level {
    PVN_TOPO_LEVEL_OK = 0,
    PVN_TOPO_LEVEL_WARN,
    PVN_TOPO_LEVEL_FAIL,
    PVN_TOPO_LEVEL_UNKNOWN, /* could not be checked; text has the reason */
};

struct pvn_topo_check {
    char id[32]; /* "link", "acs", "iommu", "ats", "relaxed-ordering", "numa", "gid", "mtu", ... */
    enum pvn_topo_level level;
    /* The object of the check: "0000:3b:00.0", "mlx5_0 port 1", "GPU0 - mlx5_1", or a plugin's
     * file, of whose name NCCL keeps 254 bytes. */
    char subject[256];
    char text[384];
    char remedy[384]; /* "" with OK */
};

struct pvn_topo_checks {
    struct pvn_topo_check *rows;
    int n;
};

/* A pair whose path is to be checked: PCI indexes of a GPU and a NIC. */
struct pvn_topo_check_pair {
    int gpu, nic;
};

/* Runs every check that needs only the model. pairs may be NULL with npairs 0: the checks then use,
 * for each GPU, the nearest RDMA function by pvn_topo_find_distance, or the nearest network
 * function if there is no RDMA function. Returns 0 or -ENOMEM. Free with pvn_topo_checks_free. */
int pvn_topo_run_checks(const struct pvn_topo *topo, const struct pvn_topo_check_pair *pairs,
                        int npairs, struct pvn_topo_checks *out);
/* Appends one row (for checks made outside the library). The texts are copied and cut to size. */
int pvn_topo_checks_add(struct pvn_topo_checks *checks, const char *id, enum pvn_topo_level level,
                        const char *subject, const char *text, const char *remedy);
void pvn_topo_checks_free(struct pvn_topo_checks *checks);
const char *pvn_topo_level_name(enum pvn_topo_level level); /* "OK", "WARN", "FAIL", "UNKNOWN" */

/* The GID index that NCCL's automatic choice takes for the port (NCCL 2.30
 * src/transport/net_ib/connect.cc, ncclIbGetGidIndex with its defaults: IPv4, RoCE v2, any range),
 * or -1 if the port has no GID. *usable: the entry can reach other hosts over RoCE v2 (always true
 * on an InfiniBand port). why gets one sentence. */
int pvn_topo_gid_pick(const struct pvn_topo_rdma_port *port, bool *usable, char *why,
                      size_t whylen);

/* ----------------------------------------------------------------------------
 * Gather */

enum pvn_topo_gather_flags {
    /* keep MAC, GID and GUID instead of stand-ins */
    PVN_TOPO_GATHER_KEEP_ADDRESSES = 1 << 0,
};

/* Writes to fd a tar (ustar with GNU long names) of the files that pvn_topo_load reads below root,
 * so that loading the tar gives the same model. Host names, serial numbers, UUIDs and DMI tags are
 * left out. MAC addresses, GIDs and GUIDs are replaced by stand-ins that keep equality and kind,
 * unless flags say otherwise. Returns 0 or negative errno. */
int pvn_topo_gather(const char *root, int fd, unsigned flags, struct pvn_topo_err *err);

#ifdef __cplusplus
}
#endif
#endif
