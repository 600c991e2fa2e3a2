// Holds a pod's namespaces: waits for a signal and reaps children.
package main

import (
	"os"
	"os/signal"
	"syscall"
)

func main() {
	c := make(chan os.Signal, 8)
	signal.Notify(c, syscall.SIGINT, syscall.SIGTERM, syscall.SIGCHLD)
	for s := range c {
		if s != syscall.SIGCHLD {
			os.Exit(0)
		}
		for {
			var w syscall.WaitStatus
			if pid, err := syscall.Wait4(-1, &w, syscall.WNOHANG, nil); pid <= 0 || err != nil {
				break
			}
		}
	}
}
