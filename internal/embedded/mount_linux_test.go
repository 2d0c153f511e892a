package embedded

import "syscall"

func mountTmpfs(dir string) error { return syscall.Mount("tmpfs", dir, "tmpfs", 0, "size=64k") }

func unmount(dir string) error { return syscall.Unmount(dir, 0) }
