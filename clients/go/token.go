package drover

import (
	"context"
	"net/http"
)

// BearerToken sends this API token with every request.
func BearerToken(token string) RequestEditorFn {
	return func(_ context.Context, request *http.Request) error {
		request.Header.Set("Authorization", "Bearer "+token)
		return nil
	}
}
