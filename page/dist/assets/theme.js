(()=>{try{let t=localStorage.getItem("ridgepoint-theme");(t==="light"||t==="dark")&&(document.documentElement.dataset.theme=t)}catch{}})();
