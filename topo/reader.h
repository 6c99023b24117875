/* SPDX-FileCopyrightText: the nccl-net-pvrdma authors
 * SPDX-License-Identifier: Apache-2.0 */
/* Shared by the readers of topo/ while a model is built. Internal. */
#ifndef PVN_TOPO_READER_H
#define PVN_TOPO_READER_H

#include "topo/fs.h"
#include "topo/pvn_topo.h"

#ifdef __cplusplus
extern "C" {
#endif

enum {
    PVN_TOPO_MAX_PCI = 16384,
    PVN_TOPO_MAX_ROOTS = 4096,
    PVN_TOPO_MAX_SWITCH_LINKS = 65536,
    PVN_TOPO_MAX_NETS = 16384,
    PVN_TOPO_MAX_RDMAS = 1024,
    PVN_TOPO_MAX_RDMA_PORTS = 255,
    PVN_TOPO_MAX_GIDS = 4096,
    PVN_TOPO_MAX_NUMAS = 1024,
    PVN_TOPO_MAX_NOTES = 64,
    PVN_TOPO_MAX_CHAIN = 512, /* bridges above a function: a path of 4096 bytes holds fewer */
};

struct pvn_topo_reader {
    struct pvn_topo_fs *fs;
    struct pvn_topo *topo;
    unsigned flags; /* enum pvn_topo_load_flags */
    struct pvn_topo_err *err;
};

/* Builds the model from an open store, which stays the caller's. */
int pvn_topo_load_fs(struct pvn_topo_fs *fs, const char *source,
                     const struct pvn_topo_options *options, struct pvn_topo **topo,
                     struct pvn_topo_err *err);

/* Each reads its part into reader->topo: 0, or -ENOMEM/-E2BIG with err set. */
int pvn_topo_read_system(
    struct pvn_topo_reader *r); /* CPUs, NUMA, kernel, modules, limits, IOMMU, DMI */
int pvn_topo_read_pci(struct pvn_topo_reader *r);
int pvn_topo_read_switch_links(struct pvn_topo_reader *r); /* after pci */
int pvn_topo_read_nets(struct pvn_topo_reader *r);
int pvn_topo_read_rdmas(struct pvn_topo_reader *r); /* after nets */
int pvn_topo_read_gpus(
    struct pvn_topo_reader *r); /* fs may be NULL: then by the functions' ids alone */
int pvn_topo_read_nvidia(struct pvn_topo_reader *r);
int pvn_topo_pair_pvrdma(struct pvn_topo_reader *r); /* after rdmas */
/* Called last, because these two use the results of the others. */
void pvn_topo_recognise_guest(struct pvn_topo_reader *r);
/* notes nodes that are named but not listed */
void pvn_topo_note_numas(struct pvn_topo_reader *r);

/* Config space. It is read only where the decoder needs it, because on hardware every four bytes
 * are a separate access, and in a guest an exit to the hypervisor. read returns the number of bytes
 * it could read, or negative errno. */
struct pvn_topo_config_source {
    ssize_t (*read)(void *ctx, size_t at, void *buf, size_t len);
    void *ctx;
};
/* *damaged: a capability list loops or leads out of its space. */
void pvn_topo_decode_config(struct pvn_topo_pci_config *c, const struct pvn_topo_config_source *src,
                            bool *damaged);
/* Sets the kind of every function: from its config space, else from its place in the tree. Depths
 * must be set before. */
void pvn_topo_pci_kinds(struct pvn_topo *topo);

/* Adds a note. The text is cut to the size of its field. */
void pvn_topo_leave_note(struct pvn_topo_reader *r, const char *where, const char *format, ...)
    __attribute__((format(printf, 3, 4)));
/* Adds the note that the directory `where` cannot be listed (rc: the cause), and marks the list as
 * unread. lost: the facts that are therefore unknown. */
void pvn_topo_leave_unread(struct pvn_topo_reader *r, enum pvn_topo_unread list, const char *where,
                           int rc, const char *lost);
/* For qsort: int, ascending. */
static inline int pvn_topo_by_number(const void *a, const void *b)
{
    int x = *(const int *)a, y = *(const int *)b;

    return (x > y) - (x < y);
}
/* Sets err and returns -ENOMEM. */
int pvn_topo_reader_nomem(struct pvn_topo_reader *r);
/* Sets err ("more than N WHAT") and returns -E2BIG. */
int pvn_topo_reader_too_many(struct pvn_topo_reader *r, const char *what, int limit);

/* Appends a zeroed element of `size` bytes to an array that only this function grows. The array
 * starts as NULL, and its capacity is always the next power of two. NULL if memory is short; the
 * array is then unchanged. */
void *pvn_topo_array_add(void **array, int *n, size_t size);

/* Reads the text of dir/name (dir is a real path) into out: cut to cap, without trailing blanks,
 * and with '?' for bytes that are not printable ASCII. False if the file cannot be read (out is
 * then ""). */
bool pvn_topo_read_text(struct pvn_topo_reader *r, const char *dir, const char *name, char *out,
                        size_t cap);
/* Reads a decimal (or, with base 16, hexadecimal) number within [min, max]. PVN_TOPO_UNKNOWN if the
 * file is missing or, with a note, if it holds something else. */
int pvn_topo_read_int(struct pvn_topo_reader *r, const char *dir, const char *name, int base,
                      int min, int max);
/* Writes the last component of the link dir/name to out. False if there is no such link. */
bool pvn_topo_read_link_name(struct pvn_topo_reader *r, const char *dir, const char *name,
                             char *out, size_t cap);
/* Writes the real path of the directory dir/name to out (PVN_TOPO_FS_PATH_MAX bytes). False, with
 * out "", if there is no such directory. */
bool pvn_topo_real_below(struct pvn_topo_reader *r, const char *dir, const char *name, char *out);
/* Cleans text in place as pvn_topo_read_text does. */
void pvn_topo_clean_text(char *text);
/* Copies text, cut to cap. */
void pvn_topo_copy_text(char *out, size_t cap, const char *text);
/* Parses the whole text as a number within [min, max]. False for anything else. */
bool pvn_topo_parse_int(const char *text, int base, long min, long max, int *value);

/* True if a word of the kernel command line is kept in the model. */
bool pvn_topo_cmdline_word_kept(const char *word);

/* Initialises a function of which only the address is known. */
void pvn_topo_pci_clear(struct pvn_topo_pci *p, uint32_t domain, int bus, int dev, int fn);
/* Index of the function, found by bisection in the sorted array (without invented functions), or
 * -1. */
int pvn_topo_pci_index(const struct pvn_topo *topo, uint32_t domain, int bus, int dev, int fn);

#ifdef __cplusplus
}
#endif
#endif
