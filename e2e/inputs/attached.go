// A static Go program: goroutines fill memory and verify it, then the same in a child and in the next program.
package main

import (
	"fmt"
	"os"
	"os/exec"
	"strconv"
	"sync"
	"syscall"
)

const goroutines = 4

func mix(x uint64) uint64 {
	x += 0x9e3779b97f4a7c15
	x = (x ^ (x >> 30)) * 0xbf58476d1ce4e5b9
	x = (x ^ (x >> 27)) * 0x94d049bb133111eb
	return x ^ (x >> 31)
}

// An eighth of each page is noise, so that it compresses, but not to nothing.
func content(at, seed uint64) uint64 {
	if at%8 != 0 {
		at >>= 9
	}
	return mix(at*64 + seed)
}

func fail(words ...any) {
	fmt.Println(words...)
	os.Exit(1)
}

func fill(mib int) {
	var all sync.WaitGroup
	for number := range make([]struct{}, goroutines) {
		all.Add(1)
		go func(seed uint64) {
			defer all.Done()
			words := make([]uint64, mib<<17/goroutines)
			for at := range words {
				words[at] = content(uint64(at), seed)
			}
			for pass := 0; pass < 2; pass++ {
				for at, word := range words {
					if word != content(uint64(at), seed) {
						fail("wrong word", at, "of", seed, "in pass", pass)
					}
				}
			}
		}(uint64(number))
	}
	all.Wait()
}

func main() {
	mib, _ := strconv.Atoi(os.Args[2])
	fill(mib)
	switch os.Args[1] {
	case "first":
		child := exec.Command(os.Args[0], "last", os.Args[2])
		if output, err := child.CombinedOutput(); err != nil || string(output) != "right\n" {
			fail("the child:", err, string(output))
		}
		fail("exec:", syscall.Exec(os.Args[0], []string{os.Args[0], "last", os.Args[2]}, os.Environ()))
	case "last":
		fmt.Println("right")
	}
}
