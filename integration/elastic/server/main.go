// Server is a search server that speaks the part of Elasticsearch's API that
// store/elastic uses: the handlers of ZincSearch, without authentication. Their
// packages open what is in ZINC_DATA_PATH. Its argument is the address to listen on.
// It prints the address that it has.
//
// It is a module of its own and in no workspace, so that what it needs enters
// nothing else.
package main

import (
	"fmt"
	"net"
	"net/http"
	"os"
	"slices"
	"sync"
	"time"

	"github.com/gin-gonic/gin"

	"github.com/zincsearch/zincsearch/pkg/core"
	"github.com/zincsearch/zincsearch/pkg/handlers/document"
	"github.com/zincsearch/zincsearch/pkg/handlers/index"
	"github.com/zincsearch/zincsearch/pkg/handlers/search"
)

func main() {
	gin.SetMode(gin.ReleaseMode)
	r := gin.New()
	r.Use(gin.Recovery(), func(c *gin.Context) {
		c.Header("X-Elastic-Product", "Elasticsearch") // the client looks for it
		c.Header("Content-Type", "application/json")
	})
	r.GET("/", func(c *gin.Context) {
		c.JSON(http.StatusOK, gin.H{"version": gin.H{"number": "8.11.0"}, "tagline": "You Know, for Search"})
	})
	// A refresh closes the index, and the next request opens it. ZincSearch waits for
	// ever if two refreshes close it, or one closes it while a request opens it. It also
	// forgets an index that was opened before the goroutine that writes to it has noticed
	// the close.
	var open sync.RWMutex
	beside := func(c *gin.Context) {
		open.RLock()
		defer open.RUnlock()
		c.Next()
	}
	alone := func(c *gin.Context) {
		open.Lock()
		defer open.Unlock()
		c.Next()
		for isWritten(c.Param("target")) {
			time.Sleep(time.Millisecond)
		}
	}
	r.PUT("/_index_template/:target", beside, index.CreateTemplate)
	r.POST("/:target/_bulk", beside, document.ESBulk)
	r.POST("/:target/_search", beside, search.SearchDSL)
	r.POST("/:target/_refresh", alone, index.Refresh)
	listener, err := net.Listen("tcp", os.Args[1])
	if err != nil {
		panic(err)
	}
	fmt.Println(listener.Addr())
	panic(http.Serve(listener, r))
}

// isWritten reports whether the goroutine that writes to indices has this one in its list.
func isWritten(index string) bool {
	return slices.ContainsFunc(core.ZINC_INDEX_SHARD_WAL_LIST.List(), func(s *core.IndexShard) bool { return s.GetIndexName() == index })
}
